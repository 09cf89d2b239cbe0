"""Converts an encoder's weights between the names of Hugging Face Transformers and the parameters of
`jaxnlp.models.bert`."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from jaxnlp.convert import tensors as table
from jaxnlp.convert.encoders import EncoderFamily, EncoderNames, families
from jaxnlp.convert.shapes import differing, refuse_variants
from jaxnlp.convert.tensors import TensorEntry, WeightsError
from jaxnlp.models.bert import BertConfig
from jaxnlp.typing import Params


def tensor_prefixes(family: EncoderFamily) -> tuple[str, ...]:
    """Possible prefixes of the encoder's names: none in models without heads and sentence-transformers, the family's in
    models with heads, and others in whole modules saved by sentence-transformers or a trainer."""
    return ("", f"{family.base}.", "model.", "auto_model.", "0.auto_model.")


class EncoderWeights(NamedTuple):
    """Parameters of `Bert`, and parameters of `PretrainingHeads`: of both heads, of one head, or None."""

    params: Params
    heads: Params | None


def from_huggingface(tensors: Mapping[str, np.ndarray], config: BertConfig, vocabulary_size: int) -> EncoderWeights:
    """Parameters for the same function, copied; floats of any precision become float32.

    Args:
      tensors: by name, with the names of the family in Transformers.
      config: the model's shape, and its model type.
      vocabulary_size: V.

    Raises: WeightsError listing tensors that are missing, unknown, not floats, not finite, or have other shapes.
    """
    family = families()[config.model_type]
    names = family.names
    prefix = table.prefix_of(tensors, tensor_prefixes(family), f"{names.tokens}.weight", family.title)

    def short(name: str) -> str | None:
        name = _modern(name.removeprefix(prefix))
        if name.startswith(f"{family.classifier_pooler}."):
            name = names.pooler + name.removeprefix(family.classifier_pooler)
        return None if name == "embeddings.position_ids" else name

    held = table.by_short_name(tensors, short, family.title)
    entries = list(_encoder(config, names, vocabulary_size))
    read = {name for entry in entries for name in entry.names}
    for head in _heads(config, names, vocabulary_size):
        if any(name in held and name not in read for entry in head for name in entry.names):
            entries += head
    trees = table.join_all(held, entries, _copies(names), family.title)
    return EncoderWeights(trees["encoder"], trees.get("heads"))


def to_huggingface(
    params: Params, config: BertConfig, vocabulary_size: int, heads: Params | None = None
) -> dict[str, np.ndarray]:
    """Tensors by Transformers' names: of a model without heads, such as BertModel, or with pretraining heads.

    Args:
      params: parameters of `Bert`.
      config: the model's shape, and its model type; its family in Transformers must support its other fields.
      vocabulary_size: V.
      heads: parameters of `PretrainingHeads`, or of one of the two heads.

    Returns:
      Copies, float32. `from_huggingface` converts them to the same bits.

    Raises: WeightsError for variants that Transformers does not support, and parameters that do not fit the config.
    """
    family = checked_family(config)
    names, trees = family.names, {"encoder": params, "heads": heads}
    prefix = "" if heads is None else f"{family.base}."
    entries = list(_encoder(config, names, vocabulary_size))
    if heads is not None:
        held = [
            head for head in _heads(config, names, vocabulary_size) if any(entry.path[0] in heads for entry in head)
        ]
        unknown = heads.keys() - {entry.path[0] for head in held for entry in head}
        if unknown:
            raise WeightsError(f"Transformers' {family.title} has no head {', '.join(sorted(unknown))}")
        entries += [entry for head in held for entry in head]
    tensors = {
        name if name.startswith(family.outside) else prefix + name: tensor
        for name, tensor in table.split_all(trees, entries).items()
    }
    if names.token_bias in tensors:
        for copy, original in _copies(names).items():
            tensors[copy] = tensors[original if original in tensors else prefix + original].copy()
    return tensors


def checked_family(config: BertConfig) -> EncoderFamily:
    """The family of an exported encoder. Raises: WeightsError unless it supports the encoder's variants."""
    known = families()
    if config.model_type not in known:
        raise WeightsError(f"model.encoder.model_type must be one of {', '.join(known)}, got {config.model_type!r}")
    family = known[config.model_type]
    strange = differing(config, family.fixed, prefix="")
    strange += [
        f"{name} = None" for name in family.fields.values() if name == "padding_id" and config.padding_id is None
    ]
    refuse_variants(family.title, strange)
    return family


def _copies(names: EncoderNames) -> dict[str, str]:
    """Tensors that some files store twice: the output layer of masked tokens shares the embedding."""
    copies = {f"{names.output}.weight": f"{names.tokens}.weight", f"{names.output}.bias": names.token_bias}
    return {copy: original for copy, original in copies.items() if copy != original}


def _encoder(config: BertConfig, names: EncoderNames, vocabulary_size: int) -> Iterator[TensorEntry]:
    tree, width, embedded = "encoder", config.width, config.embedded_width
    yield table.plain(tree, ("tokens", "embedding"), f"{names.tokens}.weight", vocabulary_size, embedded)
    if names.positions is not None:
        yield table.plain(tree, ("positions",), f"{names.positions}.weight", config.position_rows, embedded)
    if names.segments is not None:
        yield table.plain(tree, ("segments",), f"{names.segments}.weight", config.num_segments, embedded)
    yield from table.norm(tree, ("embedding_norm",), names.embedding_norm, embedded, use_bias=config.use_bias)
    if embedded != width:
        yield from table.dense(tree, ("embedding_projection",), (names.projection,), embedded, (width,))
    yield from table.blocks(
        tree,
        names.blocks,
        layers=config.num_layers,
        heads=config.num_heads,
        width=width,
        hidden=config.hidden_width,
        use_bias=config.use_bias,
        first_norm=config.first_norm,
    )
    if names.final_norm is not None:
        yield from table.norm(tree, ("final_norm",), names.final_norm, width, use_bias=config.use_bias)
    if config.use_pooler:
        yield from table.dense(tree, ("pooler",), (names.pooler,), width, (width,), use_bias=config.use_bias)
        if names.pooler_norm is not None:
            yield from table.norm(tree, ("pooler_norm",), names.pooler_norm, width, use_bias=config.use_bias)


def _heads(config: BertConfig, names: EncoderNames, vocabulary_size: int) -> Iterator[list[TensorEntry]]:
    """The pretraining heads: masked tokens, next sentences, replaced tokens. A file may have only one of them."""
    tree, width, embedded = "heads", config.width, config.embedded_width
    yield [
        *table.dense(tree, ("transform",), (names.transform,), width, (embedded,), use_bias=config.use_bias),
        *table.norm(tree, ("norm",), names.norm, embedded, use_bias=config.use_bias),
        table.plain(tree, ("token_bias",), names.token_bias, vocabulary_size),
    ]
    if names.follows is not None:
        yield list(table.dense(tree, ("follows",), (names.follows,), width, (2,)))
    if names.replaced is not None:
        inner, outer = names.replaced
        yield [
            *table.dense(tree, ("replaced", "transform"), (inner,), width, (width,)),
            *table.dense(tree, ("replaced", "output"), (outer,), width, (1,)),
        ]


def _modern(name: str) -> str:
    """The name in current files: original TensorFlow checkpoints call the parameters of a normalisation gamma and
    beta."""
    return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")
