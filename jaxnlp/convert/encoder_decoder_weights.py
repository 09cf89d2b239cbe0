"""Converts an encoder-decoder's weights between the names of Hugging Face Transformers and the parameters of
`jaxnlp.models.encoder_decoder`."""

from collections.abc import Iterator, Mapping

import numpy as np

from jaxnlp.convert import tensors as table
from jaxnlp.convert.encoder_decoders import EncoderDecoderFamily
from jaxnlp.convert.shapes import differing, refuse_variants
from jaxnlp.convert.tensors import TensorEntry, WeightsError
from jaxnlp.models.encoder_decoder import EncoderDecoderConfig
from jaxnlp.ops.positions import sinusoidal_positions
from jaxnlp.typing import Params


def has_head(
    tensors: Mapping[str, np.ndarray], family: EncoderDecoderFamily, *, tied: bool, shared: bool = True
) -> bool:
    """Whether the output layer has its own matrix. A file may also store a tied one.

    Args:
      tensors: of any shapes [...], by name.
      family: of the tensors.
      tied: whether a model without a stored output layer ties it to the embedding.
      shared: whether sources and targets share a table of embeddings.
    """
    held = _by_name(tensors, family, shared=shared)
    target = family.tokens if shared else family.copies[1]
    head, tokens = (held.get(f"{name}.weight") for name in (family.head, target))
    if head is None or tokens is None:
        return not tied
    return not np.array_equal(head[1], tokens[1])


def has_output_bias(tensors: Mapping[str, np.ndarray], family: EncoderDecoderFamily) -> bool:
    """Whether the logits have nonzero biases. Args: tensors: of any shapes [...], by name; family: of them."""
    return bool(np.any(tensors.get(family.output_bias, 0)))


def from_huggingface(
    tensors: Mapping[str, np.ndarray],
    config: EncoderDecoderConfig,
    vocabulary_size: int,
    family: EncoderDecoderFamily,
    *,
    source_size: int | None = None,
) -> Params:
    """Parameters of `EncoderDecoder` for the same function, copied; floats of any precision become float32.

    Args:
      tensors: by name, with the names of the family in Transformers.
      config: the model's shape.
      vocabulary_size: V, the number of embeddings.
      family: of the tensors.
      source_size: V of sources with their own table; None = one table.

    Raises: WeightsError listing tensors that are missing, unknown, not floats, not finite, or have other shapes, and
    copies of the embedding that differ from it.
    """
    held = _by_name(tensors, family, shared=config.one_table)
    target = family.tokens if config.one_table else family.copies[1]
    mark = family.encoder.norm or family.encoder.embedding_norm or target
    table.prefix_of(held, ("",), f"{mark}.weight", family.title)
    if not config.output_bias and not has_output_bias(tensors, family):
        held.pop(family.output_bias, None)
    if config.positions == "sinusoidal":
        _remove_sines(held, config, family)
    same = (*(family.copies if config.one_table else ()), *([family.head] if config.ties_output else []))
    copies = {f"{name}.weight": f"{target}.weight" for name in same}
    entries = list(_entries(config, family, vocabulary_size, source_size))
    return table.join_all(held, entries, copies, family.title)[_TREE]


def _remove_sines(
    held: dict[str, tuple[str, np.ndarray]], config: EncoderDecoderConfig, family: EncoderDecoderFamily
) -> None:
    """Removes stored positions, which are computed here. Raises: WeightsError if they are not those sines."""
    sines = np.asarray(sinusoidal_positions(config.context_length, config.width, sines_first=config.sines_first))
    for names in (family.encoder, family.decoder):
        own, stored = held.pop(f"{names.positions}.weight", ("", sines))
        # float16 and bfloat16 round them; float32 differs by the rounding of the angles.
        if stored.shape != sines.shape or not np.allclose(np.asarray(stored, np.float32), sines, atol=5e-3):
            raise WeightsError(f"{own} is not the table of sines and cosines that {family.title} has")


def to_huggingface(params: Params, config: EncoderDecoderConfig, family: EncoderDecoderFamily) -> dict[str, np.ndarray]:
    """Tensors by Transformers' names, of the class with the output layer.

    Args:
      params: parameters of `EncoderDecoder`.
      config: the model's shape.
      family: of the result.

    Returns:
      Copies, float32, without a tied output layer. `from_huggingface` converts them to the same bits.

    Raises: WeightsError for variants that the family does not have, and parameters that do not fit the config.
    """
    refuse_variants(family.title, unsupported(config, family))
    source, target = (len(params[name]["embedding"]) for name in table_names(config))
    tensors = table.split_all({_TREE: params}, _entries(config, family, target, source))
    if config.one_table and family.separates_copies and not config.ties_output:
        tensors |= {f"{copy}.weight": tensors[f"{family.tokens}.weight"].copy() for copy in family.copies}
    outside = (f"{family.head}.weight", family.output_bias)
    return {name if name in outside else family.prefix + name: tensor for name, tensor in tensors.items()}


def unsupported(config: EncoderDecoderConfig, family: EncoderDecoderFamily) -> list[str]:
    """The options of a model that its family in Transformers does not have, each with its value."""
    strange = differing(config, family.fixed)
    if not config.one_table and not family.two_tables:
        strange.append(f"model.embeddings = {config.embeddings}")
    if (config.activation, config.gated) not in family.values[family.setting("feed_forward")].values():
        strange.append(f"model.activation = {config.activation} and model.gated = {config.gated}")
    if config.scale_logits and not family.scales_logits:
        strange.append("model.scale_logits = True")
    if "head_width" not in family.fields.values() and config.key_width * config.num_heads != config.width:
        strange.append(f"model.head_width = {config.head_width}")
    return strange


def table_names(config: EncoderDecoderConfig) -> tuple[str, str]:
    """The names in `params` of the embeddings of sources and of targets, which may be one table."""
    return ("tokens", "tokens") if config.one_table else ("source_tokens", "target_tokens")


_TREE = "encoder-decoder"


def _by_name(
    tensors: Mapping[str, np.ndarray], family: EncoderDecoderFamily, *, shared: bool
) -> dict[str, tuple[str, np.ndarray]]:
    """The tensors and their own names, by their names without the prefix; a shared table of embeddings under its own
    name, since a file may have only one of its copies."""

    def short(name: str) -> str | None:
        name = name.removeprefix(family.prefix)
        return None if name in family.buffers else name

    held = table.by_short_name(tensors, short, family.title)
    names = [f"{name}.weight" for name in (family.tokens, *family.copies, family.head)]
    there = next((name for name in names if name in held), None) if shared else None
    return held if there is None else {names[0]: held[there], **held}


def _entries(
    config: EncoderDecoderConfig, family: EncoderDecoderFamily, vocabulary_size: int, source_size: int | None
) -> Iterator[TensorEntry]:
    width = config.width
    if config.one_table:
        yield table.plain(_TREE, ("tokens", "embedding"), f"{family.tokens}.weight", vocabulary_size, width)
    else:
        sizes = (source_size or vocabulary_size, vocabulary_size)
        for ours, theirs, size in zip(table_names(config), family.copies, sizes, strict=True):
            yield table.plain(_TREE, (ours, "embedding"), f"{theirs}.weight", size, width)
    for side, names, layers in (
        ("encoder", family.encoder, config.num_layers),
        ("decoder", family.decoder, config.decoder_layers),
    ):
        yield from table.blocks(
            _TREE,
            names.blocks if config.gated else names.blocks._replace(up=names.up, gate=""),
            layers=layers,
            heads=config.num_heads,
            width=width,
            hidden=config.hidden_width,
            prefix=(side,),
            head_width=config.key_width,
            use_bias=config.use_bias,
        )
        if names.relative_bias:
            bias = f"{names.relative_bias}.weight"
            yield table.plain(_TREE, (side, "relative_bias"), bias, config.num_buckets, config.num_heads)
        if names.norm:
            yield from table.norm(_TREE, (side, "final_norm"), names.norm, width, use_bias=config.use_bias)
        ours = {"encoder": "source", "decoder": "target"}[side]
        if names.positions and config.positions == "learned":
            rows = config.position_offset + config.context_length
            yield table.plain(_TREE, (f"{ours}_positions",), f"{names.positions}.weight", rows, width)
        if names.embedding_norm:
            yield from table.norm(_TREE, (f"{ours}_norm",), names.embedding_norm, width)
    if not config.ties_output:
        yield table.kernel(_TREE, ("head", "kernel"), (family.head,), width, (vocabulary_size,))
    if config.output_bias:
        shape = (1, vocabulary_size)
        yield TensorEntry(
            _TREE, ("output_bias",), (family.output_bias,), (shape,), lambda x: x[0][0].copy(), lambda x: [x[None]]
        )
