"""LSTM language models in PyTorch."""

import torch
import torch.nn.functional as F
from torch import nn


class TorchLSTM(nn.Module):
    """Embedding, LSTM layers, output layer: a loop of cells, as in courses, or `nn.LSTM`."""

    def __init__(self, vocabulary_size: int, width: int, layers: int, *, fused: bool):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary_size, width)
        self.lstm = nn.LSTM(width, width, layers, batch_first=True) if fused else None
        self.cells = nn.ModuleList() if fused else nn.ModuleList(nn.LSTMCell(width, width) for _ in range(layers))
        self.output = nn.Linear(width, vocabulary_size)

    def logits(self, tokens: torch.Tensor) -> torch.Tensor:
        """Args: tokens [B, T] int64. Returns: [B, T, V]."""
        x = self.embedding(tokens)
        if self.lstm is not None:
            x, _ = self.lstm(x)
        else:
            states: list[tuple[torch.Tensor, torch.Tensor] | None] = [None] * len(self.cells)
            outputs = []
            for position in range(x.shape[1]):
                h = x[:, position]
                for i, cell in enumerate(self.cells):
                    h, c = cell(h, states[i])
                    states[i] = (h, c)
                outputs.append(h)
            x = torch.stack(outputs, dim=1)
        return self.output(x)

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Args: tokens and targets [B, T] int64. Returns: mean cross-entropy in nats."""
        return F.cross_entropy(self.logits(tokens).flatten(0, 1), targets.flatten())
