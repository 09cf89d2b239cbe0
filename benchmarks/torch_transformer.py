"""The translation Transformer in PyTorch, with `nn.Transformer`; and beam search with a cache of keys and values."""

import math

import torch
import torch.nn.functional as F
from torch import nn

from jaxnlp.models.encoder_decoder import EncoderDecoderConfig


class TorchTransformer(nn.Module):
    """The model of `models.encoder_decoder`: pre-norm, with shared embeddings and sinusoidal positions."""

    def __init__(self, config: EncoderDecoderConfig, vocabulary_size: int):
        super().__init__()
        self.width, self.num_heads = config.width, config.num_heads
        self.tokens = nn.Embedding(vocabulary_size, config.width)
        nn.init.normal_(self.tokens.weight, std=config.width**-0.5)
        place = torch.arange(config.context_length)[:, None]
        rate = torch.exp(torch.arange(0, config.width, 2) * (-math.log(10_000.0) / config.width))
        positions = torch.stack([torch.sin(place * rate), torch.cos(place * rate)], dim=-1).flatten(1)
        self.positions: torch.Tensor
        self.register_buffer("positions", positions, persistent=False)
        self.dropout = nn.Dropout(config.dropout_rate)
        sizes = (config.width, config.num_heads, config.feed_forward_width or 4 * config.width, config.dropout_rate)
        layer = nn.TransformerEncoderLayer(*sizes, batch_first=True, norm_first=True)
        norm = nn.LayerNorm(config.width)
        encoder = nn.TransformerEncoder(layer, config.num_layers, norm, enable_nested_tensor=False)
        width, heads, hidden, dropout = sizes
        layers = (config.num_layers, config.num_layers)
        self.transformer = nn.Transformer(
            width, heads, *layers, hidden, dropout, custom_encoder=encoder, batch_first=True, norm_first=True
        )

    def embed(self, tokens: torch.Tensor, first: int = 0) -> torch.Tensor:
        """[B, T] int64 -> [B, T, D]."""
        places = self.positions[first : first + tokens.shape[1]]
        return self.dropout(self.tokens(tokens) * self.width**0.5 + places)

    def forward(self, source: torch.Tensor, padding: torch.Tensor, inputs: torch.Tensor) -> torch.Tensor:
        """Args: source [B, S] and inputs [B, T] int64, padding [B, S] bool. Returns: logits [B, T, V]."""
        future = torch.ones(inputs.shape[1], inputs.shape[1], dtype=torch.bool).triu(1)
        hidden = self.transformer(
            self.embed(source),
            self.embed(inputs),
            tgt_mask=future,
            src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
            tgt_is_causal=True,
        )
        return F.linear(hidden, self.tokens.weight)

    def _heads(self, x: torch.Tensor) -> torch.Tensor:
        return x.view(*x.shape[:2], self.num_heads, -1).transpose(1, 2)

    def _joined(self, x: torch.Tensor) -> torch.Tensor:
        return x.transpose(1, 2).flatten(2)

    @torch.no_grad()
    def translate(
        self, source: torch.Tensor, padding: torch.Tensor, start: int, beams: int, steps: int
    ) -> torch.Tensor:
        """The translations [B, N, steps] of beam search without an end symbol, best first."""
        batch, layers = len(source), self.transformer.decoder.layers
        memory = self.transformer.encoder(self.embed(source), src_key_padding_mask=padding)
        width = self.width
        kept = []
        for layer in layers:  # the source's keys and values, once for all steps
            w, b = layer.multihead_attn.in_proj_weight[width:], layer.multihead_attn.in_proj_bias[width:]
            k, v = F.linear(memory, w, b).chunk(2, dim=-1)
            kept.append([self._heads(part).repeat_interleave(beams, dim=0) for part in (k, v)])
        hidden = (
            torch.zeros(padding.shape).masked_fill(padding, -torch.inf).repeat_interleave(beams, dim=0)[:, None, None]
        )
        caches: list[list[torch.Tensor]] = [[] for _ in layers]
        scores = torch.full((batch, beams), -torch.inf)
        scores[:, 0] = 0.0
        tokens = torch.full((batch * beams, 1), start)
        for step in range(steps):
            x = self.embed(tokens[:, -1:], step)
            for layer, cache, (memory_k, memory_v) in zip(layers, caches, kept, strict=True):
                attention = layer.self_attn
                qkv = F.linear(layer.norm1(x), attention.in_proj_weight, attention.in_proj_bias)
                q, k, v = (self._heads(part) for part in qkv.chunk(3, dim=-1))
                if cache:
                    k, v = (torch.cat(pair, dim=2) for pair in zip(cache, (k, v), strict=True))
                cache[:] = k, v
                x = x + attention.out_proj(self._joined(F.scaled_dot_product_attention(q, k, v)))
                attention = layer.multihead_attn
                q = F.linear(layer.norm2(x), attention.in_proj_weight[:width], attention.in_proj_bias[:width])
                mixed = F.scaled_dot_product_attention(self._heads(q), memory_k, memory_v, attn_mask=hidden)
                x = x + attention.out_proj(self._joined(mixed))
                x = x + layer.linear2(F.relu(layer.linear1(layer.norm3(x))))
            logits = F.linear(self.transformer.decoder.norm(x[:, 0]), self.tokens.weight)
            both = scores[:, :, None] + logits.log_softmax(dim=-1).view(batch, beams, -1)
            scores, places = both.flatten(1).topk(beams, dim=1)
            rows = (places // both.shape[2] + beams * torch.arange(batch)[:, None]).flatten()
            tokens = torch.cat([tokens[rows], (places % both.shape[2]).view(-1, 1)], dim=1)
            for cache in caches:
                cache[:] = [part[rows] for part in cache]
        return tokens[:, 1:].view(batch, beams, steps)
