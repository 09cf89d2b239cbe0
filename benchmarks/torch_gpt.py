"""GPTs in PyTorch.

`CourseAttention` has the style of courses and karpathy/minGPT: four projections, then scores, mask, softmax and dropout
one after the other, GELU by erf. `FusedAttention` has the style of karpathy/nanoGPT: a fused projection, the fused
attention of PyTorch, GELU by tanh. PyTorch's fused kernel for CPUs has no dropout: with dropout,
`scaled_dot_product_attention` computes step by step in float32, also under autocast, so it is not used then. Its
kernels for GPUs have dropout.
"""

import math

import torch
import torch.nn.functional as F
from torch import nn

from jaxnlp.models.gpt import GPTConfig


class CourseAttention(nn.Module):
    """Causal self-attention, step by step."""

    def __init__(self, config: GPTConfig):
        super().__init__()
        self.num_heads = config.num_heads
        self.q, self.k, self.v, self.out = (nn.Linear(config.width, config.width) for _ in range(4))
        self.attention_dropout = nn.Dropout(config.attention_dropout_rate)
        self.dropout = nn.Dropout(config.residual_dropout_rate)
        past = torch.tril(torch.ones(config.context_length, config.context_length))
        self.past: torch.Tensor
        self.register_buffer("past", past.view(1, 1, config.context_length, config.context_length))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, positions, width = x.shape
        q, k, v = (
            dense(x).view(batch, positions, self.num_heads, width // self.num_heads).transpose(1, 2)
            for dense in (self.q, self.k, self.v)
        )
        scores = (q @ k.transpose(-2, -1)) / math.sqrt(k.shape[-1])
        scores = scores.masked_fill(self.past[:, :, :positions, :positions] == 0, -1e10)
        y = self.attention_dropout(F.softmax(scores, dim=-1)) @ v
        return self.dropout(self.out(y.transpose(1, 2).contiguous().view(batch, positions, width)))


class FusedAttention(nn.Module):
    """Causal self-attention with a fused projection and, without dropout, PyTorch's fused kernel."""

    def __init__(self, config: GPTConfig):
        super().__init__()
        self.num_heads = config.num_heads
        self.attention_dropout = nn.Dropout(config.attention_dropout_rate)
        future = torch.ones(config.context_length, config.context_length, dtype=torch.bool).triu(1)
        self.future: torch.Tensor
        self.register_buffer("future", future, persistent=False)
        self.qkv = nn.Linear(config.width, 3 * config.width, bias=config.use_bias)
        self.out = nn.Linear(config.width, config.width, bias=config.use_bias)
        self.dropout = nn.Dropout(config.residual_dropout_rate)
        self.keys: torch.Tensor
        self.values: torch.Tensor

    def start_cache(self, batch: int, positions: int) -> None:
        """Makes room for keys and values [B, H, S, K]: buffers, whose addresses a CUDA graph may keep."""
        width = self.out.in_features // self.num_heads
        for name in ("keys", "values"):
            cache = self.out.weight.new_zeros(batch, self.num_heads, positions, width)
            self.register_buffer(name, cache, persistent=False)

    def forward(self, x: torch.Tensor, at: torch.Tensor | None = None) -> torch.Tensor:
        """Args: x [B, T, D]. at: the positions of x [T], which then also reads the cache; None = all, without cache."""
        batch, positions, width = x.shape
        q, k, v = (
            part.view(batch, positions, self.num_heads, width // self.num_heads).transpose(1, 2)
            for part in self.qkv(x).split(width, dim=2)
        )
        rate = self.attention_dropout.p if self.training else 0.0
        if at is not None:
            self.keys.index_copy_(2, at, k)
            self.values.index_copy_(2, at, v)
            past = torch.arange(self.keys.shape[2])[None] <= at[:, None]
            y = F.scaled_dot_product_attention(q, self.keys, self.values, attn_mask=past)
        elif rate and not q.is_cuda:
            scores = (q * k.shape[-1] ** -0.5) @ k.transpose(-2, -1)
            scores = scores.masked_fill(self.future[:positions, :positions], -torch.inf)
            y = self.attention_dropout(F.softmax(scores, dim=-1)) @ v
        else:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=rate)
        return self.dropout(self.out(y.transpose(1, 2).reshape(batch, positions, width)))


class Block(nn.Module):
    """Pre-norm attention and feed-forward layer."""

    def __init__(self, config: GPTConfig, attention: nn.Module, gelu: nn.Module):
        super().__init__()
        hidden = config.feed_forward_width or 4 * config.width
        self.attention_norm = nn.LayerNorm(config.width, bias=config.use_bias)
        self.attention = attention
        self.feed_forward_norm = nn.LayerNorm(config.width, bias=config.use_bias)
        self.feed_forward = nn.Sequential(
            nn.Linear(config.width, hidden, bias=config.use_bias),
            gelu,
            nn.Linear(hidden, config.width, bias=config.use_bias),
            nn.Dropout(config.residual_dropout_rate),
        )

    def forward(self, x: torch.Tensor, *at: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.attention_norm(x), *at)
        return x + self.feed_forward(self.feed_forward_norm(x))


class TorchGPT(nn.Module):
    """The shape of `jaxnlp.models.gpt`, with either attention; with the fused one it has the same layers."""

    def __init__(self, config: GPTConfig, vocabulary_size: int, *, fused: bool):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary_size, config.width)
        self.positions = nn.Embedding(config.context_length, config.width)
        self.dropout = nn.Dropout(config.embedding_dropout_rate)
        self.blocks = nn.ModuleList(
            Block(config, FusedAttention(config), nn.GELU(approximate="tanh"))
            if fused
            else Block(config, CourseAttention(config), nn.GELU())
            for _ in range(config.num_layers)
        )
        self.norm = nn.LayerNorm(config.width, bias=config.use_bias)
        self.head = nn.Linear(config.width, vocabulary_size, bias=False)
        if config.tie_embeddings:
            self.head.weight = self.tokens.weight
        for name, parameter in self.named_parameters():
            if parameter.dim() < 2:
                continue
            residual = name.endswith(("attention.out.weight", "feed_forward.2.weight"))
            nn.init.normal_(parameter, std=0.02 / (2 * config.num_layers) ** 0.5 if residual else 0.02)

    def logits(self, tokens: torch.Tensor) -> torch.Tensor:
        """Args: tokens [B, T] int64. Returns: [B, T, V]."""
        x = self.dropout(self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1])))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))

    def start_cache(self, batch: int, positions: int) -> None:
        """Makes room for a batch of this length, for `next_tokens`; with fused attention only."""
        for module in self.modules():
            if isinstance(module, FusedAttention):
                module.start_cache(batch, positions)

    def next_tokens(self, tokens: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        """The most likely token after each of the rows, which continue the cache, as in pytorch-labs/gpt-fast.

        Args: tokens [B, T] int64. at: their positions [T] int64. Returns: [B, 1] int64.
        """
        x = self.dropout(self.tokens(tokens) + self.positions(at))
        for block in self.blocks:
            x = block(x, at)
        return self.head(self.norm(x[:, -1:])).argmax(dim=-1)

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor, reduction: str = "mean") -> torch.Tensor:
        """Args: tokens and targets [B, T] int64. Returns: cross-entropy in nats, per token or summed."""
        logits = self.logits(tokens)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.reshape(-1), reduction=reduction)
