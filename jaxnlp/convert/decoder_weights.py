"""Converts a decoder's weights between the names of Hugging Face Transformers and the parameters of
`jaxnlp.models.gpt` and `jaxnlp.models.llama`."""

from collections.abc import Iterator, Mapping

import numpy as np

from jaxnlp.convert import tensors as table
from jaxnlp.convert.decoders import DecoderFamily
from jaxnlp.convert.shapes import differing, refuse_variants
from jaxnlp.convert.tensors import TensorEntry
from jaxnlp.models.gpt import GPTConfig
from jaxnlp.typing import Params


def from_huggingface(
    tensors: Mapping[str, np.ndarray], config: GPTConfig, vocabulary_size: int, family: DecoderFamily
) -> Params:
    """Parameters of `GPT` or `Llama` for the same function, copied; floats of any precision become float32.

    Args:
      tensors: by name, with the names of the family in Transformers, with or without its prefix.
      config: the model's shape.
      vocabulary_size: V, the number of embeddings.
      family: of the tensors.

    Raises: WeightsError listing tensors that are missing, unknown, not floats, not finite, or have other shapes, and a
    tied output layer that differs from the embedding.
    """
    names = family.names
    prefix = table.prefix_of(tensors, ("", f"{family.base}."), f"{names.tokens}.weight", family.title)
    blocks = [names.blocks.block.format(layer) for layer in range(config.num_layers)]
    buffers = {block + name for block in blocks for name in names.buffers}

    def short(name: str) -> str | None:
        name = name.removeprefix(prefix)
        return None if name in buffers else name

    held = table.by_short_name(tensors, short, family.title)
    copies = {f"{names.head}.weight": f"{names.tokens}.weight"} if config.tie_embeddings else {}
    return table.join_all(held, list(entries_of(config, family, vocabulary_size)), copies, family.title)[_TREE]


def has_own_head(tensors: Mapping[str, np.ndarray], family: DecoderFamily) -> bool:
    """Whether tensors [...] by name have an output layer that differs from the embedding."""
    own = family.names
    head, *tables = (tensors.get(f"{name}.weight") for name in (own.head, own.tokens, f"{family.base}.{own.tokens}"))
    return head is not None and not any(table is not None and np.array_equal(head, table) for table in tables)


def to_huggingface(params: Params, config: GPTConfig, family: DecoderFamily) -> dict[str, np.ndarray]:
    """Tensors by Transformers' names, of the class with the output layer.

    Args:
      params: parameters of `GPT` or `Llama`.
      config: the model's shape.
      family: of the result.

    Returns:
      Copies, float32, without a tied output layer. `from_huggingface` converts them to the same bits.

    Raises: WeightsError for variants that the family does not have, and parameters that do not fit the config.
    """
    other = type(config) is not family.config
    refuse_variants(family.title, [f"a {type(config).__name__}"] if other else differing(config, family.fixed))
    size = len(params["tokens"]["embedding"])
    tensors = table.split_all({_TREE: params}, entries_of(config, family, size))
    outside = f"{family.names.head}."
    return {name if name.startswith(outside) else f"{family.base}.{name}": tensor for name, tensor in tensors.items()}


_TREE = "decoder"


def entries_of(config: GPTConfig, family: DecoderFamily, vocabulary_size: int) -> Iterator[TensorEntry]:
    """The table of a decoder. Args: as for `from_huggingface`."""
    names, width, use_bias = family.names, config.width, config.use_bias
    yield table.plain(_TREE, ("tokens", "embedding"), f"{names.tokens}.weight", vocabulary_size, width)
    if names.positions:
        yield table.plain(_TREE, ("positions",), f"{names.positions}.weight", config.context_length, width)
    yield from table.blocks(
        _TREE,
        names.blocks,
        layers=config.num_layers,
        heads=config.num_heads,
        width=width,
        hidden=config.hidden_width,
        transposed=family.transposed,
        head_width=config.key_width,
        key_heads=config.key_heads,
        use_bias=use_bias,
        qkv_bias=family.fixed.get("qkv_bias"),
    )
    yield from table.norm(_TREE, ("final_norm",), names.norm, width, use_bias=use_bias)
    if not config.tie_embeddings:
        yield table.kernel(_TREE, ("head", "kernel"), (names.head,), width, (vocabulary_size,))
