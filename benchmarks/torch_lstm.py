"""LSTM language models in PyTorch."""

import itertools

import torch
import torch.nn.functional as F
from torch import nn

from jaxnlp.models.recurrent_lm import RecurrentLMConfig


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


class TorchAWDLSTM(nn.Module):
    """The model of AWD-LSTM without the dropout of weights and words: `nn.LSTM` layers, and the same mask for all
    positions between them."""

    def __init__(self, config: RecurrentLMConfig, vocabulary_size: int):
        super().__init__()
        widths = (config.embedding_width, *config.widths)
        self.embedding = nn.Embedding(vocabulary_size, config.embedding_width)
        self.layers = nn.ModuleList(
            nn.LSTM(before, after, batch_first=True) for before, after in itertools.pairwise(widths)
        )
        between = [config.hidden_dropout_rate] * (len(config.widths) - 1)
        self.rates = [config.input_dropout_rate, *between, config.output_dropout_rate]
        self.bias = nn.Parameter(torch.zeros(vocabulary_size))

    def _dropped(self, x: torch.Tensor, rate: float) -> torch.Tensor:
        return x * F.dropout(torch.ones_like(x[:, :1]), rate, self.training)

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Args: tokens and targets [B, T] int64. Returns: mean cross-entropy in nats."""
        x = self._dropped(self.embedding(tokens), self.rates[0])
        for layer, rate in zip(self.layers, self.rates[1:], strict=True):
            x = self._dropped(layer(x)[0], rate)
        return F.cross_entropy(F.linear(x, self.embedding.weight, self.bias).flatten(0, 1), targets.flatten())
