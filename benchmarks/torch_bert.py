"""BERT in PyTorch, in the style of the minBERT project."""

import math

import torch
import torch.nn.functional as F
from torch import nn


class Layer(nn.Module):
    """Post-norm attention and feed-forward layer; attention is step by step, or without dropout the fused kernel."""

    def __init__(self, width: int, heads: int, dropout: float, *, fused: bool):
        super().__init__()
        self.heads, self.fused = heads, fused
        self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.attention_norm, self.output_norm = nn.LayerNorm(width, eps=1e-12), nn.LayerNorm(width, eps=1e-12)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: torch.Tensor, additive_mask: torch.Tensor) -> torch.Tensor:
        batch, positions, width = x.shape
        q, k, v = (
            dense(x).view(batch, positions, self.heads, width // self.heads).transpose(1, 2)
            for dense in (self.q, self.k, self.v)
        )
        rate = self.dropout.p if self.training else 0.0
        if self.fused and (q.is_cuda or not rate):  # see torch_gpt
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=additive_mask.to(q.dtype), dropout_p=rate)
        else:
            scores = q @ k.transpose(-2, -1) / math.sqrt(k.shape[-1]) + additive_mask.to(q.dtype)
            y = self.dropout(F.softmax(scores, dim=-1)) @ v
        y = y.transpose(1, 2).contiguous().view(batch, positions, width)
        x = self.attention_norm(x + self.dropout(self.out(y)))
        return self.output_norm(x + self.dropout(self.down(F.gelu(self.up(x)))))


class TorchBert(nn.Module):
    """Encoder, pooler, output layer."""

    def __init__(
        self,
        vocabulary_size: int,
        width: int,
        heads: int,
        layers: int,
        positions: int,
        classes: int,
        dropout: float,
        *,
        fused: bool,
    ):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary_size, width)
        self.positions = nn.Embedding(positions, width)
        self.segments = nn.Embedding(2, width)
        self.norm = nn.LayerNorm(width, eps=1e-12)
        self.dropout = nn.Dropout(dropout)
        self.layers = nn.ModuleList(Layer(width, heads, dropout, fused=fused) for _ in range(layers))
        self.pooler, self.output = nn.Linear(width, width), nn.Linear(width, classes)

    def forward(self, tokens: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        """Args: tokens [B, T] int64, lengths [B] int64. Returns: logits [B, C]."""
        positions = torch.arange(tokens.shape[1])
        mask = torch.where(positions[None] < lengths[:, None], 0.0, -10000.0)[:, None, None]
        segments = self.segments(torch.zeros_like(tokens))
        x = self.dropout(self.norm(self.tokens(tokens) + self.positions(positions) + segments))
        for layer in self.layers:
            x = layer(x, mask)
        return self.output(self.dropout(torch.tanh(self.pooler(x[:, 0]))))
