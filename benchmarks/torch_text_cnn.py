"""Kim's convolutional network in PyTorch, with `nn.Conv1d`."""

import torch
import torch.nn.functional as F
from torch import nn

from jaxnlp.models.text_cnn import TextCNNConfig


class TorchTextCNN(nn.Module):
    """The model of `models.text_cnn` with trained vectors, for texts without padding."""

    def __init__(self, config: TextCNNConfig, vocabulary_size: int, classes: int):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary_size, config.embedding_width)
        self.convolutions = nn.ModuleList(
            nn.Conv1d(config.embedding_width, config.feature_maps, window, padding=window - 1)
            for window in config.windows
        )
        self.embedding_dropout = nn.Dropout(config.embedding_dropout_rate)
        self.dropout = nn.Dropout(config.dropout_rate)
        self.output = nn.Linear(config.feature_maps * len(config.windows), classes)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Args: tokens [B, T] int64. Returns: logits [B, C]."""
        x = self.embedding_dropout(self.embedding(tokens)).transpose(1, 2)
        features = torch.cat([F.relu(layer(x)).amax(dim=-1) for layer in self.convolutions], dim=-1)
        return self.output(self.dropout(features))
