"""A Vision Transformer in PyTorch, with `nn.TransformerEncoder` and a convolutional stem."""

import torch
import torch.nn.functional as F
from torch import nn

from jaxnlp.models.vit import ViTConfig


class TorchViT(nn.Module):
    """The model of `models.vit` with a convolutional stem, learned positions, and the mean over the patches."""

    def __init__(self, config: ViTConfig, size: int, mean: tuple[float, ...], stddev: tuple[float, ...], classes: int):
        super().__init__()
        self.mean: torch.Tensor
        self.stddev: torch.Tensor
        self.register_buffer("mean", torch.tensor(mean)[:, None, None], persistent=False)
        self.register_buffer("stddev", torch.tensor(stddev)[:, None, None], persistent=False)
        width, channels, patch = config.width, len(mean), config.patch
        self.convolutions, self.norms = nn.ModuleList(), nn.ModuleList()
        for _ in range(config.convolutions):
            patch //= 2
            self.convolutions.append(nn.Conv2d(channels, width // patch, 3, stride=2, padding=1))
            self.norms.append(nn.LayerNorm(width // patch))
            channels = width // patch
        self.project = nn.Linear(channels, width)
        self.positions = nn.Parameter(torch.zeros((size // config.patch) ** 2, width))
        layer = nn.TransformerEncoderLayer(
            width,
            config.num_heads,
            config.feed_forward_width or 4 * width,
            config.dropout_rate,
            activation="gelu",
            batch_first=True,
            norm_first=True,
        )
        self.encoder = nn.TransformerEncoder(layer, config.num_layers, nn.LayerNorm(width), enable_nested_tensor=False)
        self.output = nn.Linear(width, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Args: images [B, I, I, R] uint8. Returns: logits [B, C]."""
        x = (images.permute(0, 3, 1, 2).float() / 255.0 - self.mean) / self.stddev
        for convolution, norm in zip(self.convolutions, self.norms, strict=True):
            x = F.gelu(norm(convolution(x).permute(0, 2, 3, 1))).permute(0, 3, 1, 2)
        x = self.project(x.flatten(2).transpose(1, 2)) + self.positions
        return self.output(self.encoder(x).mean(dim=1))
