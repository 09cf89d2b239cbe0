"""Converts an image encoder's weights between the names of Hugging Face Transformers and the parameters of
`jaxnlp.models.vit`.

Further axes: R channels, P rows or columns of a patch.
"""

from collections.abc import Iterator, Mapping

import numpy as np

from jaxnlp.convert import tensors as table
from jaxnlp.convert.image_encoders import ImageEncoderFamily
from jaxnlp.convert.shapes import differing, refuse_variants
from jaxnlp.convert.tensors import TensorEntry
from jaxnlp.models.classifier import HEAD
from jaxnlp.models.vit import DISTILLATION_HEAD, ViTConfig
from jaxnlp.typing import Params

_FIXED = {"stem": "patches", "positions": "learned", "pooling": "cls", "unit_vectors": False}


def heads_of(tensors: Mapping[str, np.ndarray], family: ImageEncoderFamily) -> tuple[str, ...]:
    """The names of the heads among the tensors, without `.weight`; () = none.

    Args:
      tensors: of any shapes [...], by name.
      family: of the tensors.
    """
    held = [heads for heads in family.heads.values() if any(f"{name}.weight" in tensors for name in heads)]
    return held[0] if held else ()


def has_pooler(tensors: Mapping[str, np.ndarray], family: ImageEncoderFamily) -> bool:
    """Whether the tensors, of any shapes [...], have the pooler of a family."""
    pooler = family.names.pooler
    return bool(pooler) and any(name.endswith(f"{pooler}.weight") for name in tensors)


def from_huggingface(
    tensors: Mapping[str, np.ndarray],
    config: ViTConfig,
    family: ImageEncoderFamily,
    *,
    patches: int,
    channels: int,
    classes: int,
) -> Params:
    """Parameters of `ViT` for the same function, copied; floats of any precision become float32.

    Args:
      tensors: by name, with the names of the family in Transformers, with or without its prefix.
      config: the model's shape.
      family: of the tensors.
      patches: of an image.
      channels: R.
      classes: C; 0 = no head.

    Raises: WeightsError listing tensors that are missing, unknown, not floats, not finite, or have other shapes.
    """
    names = family.names
    prefix = table.prefix_of(tensors, ("", f"{family.base}."), names.tokens["class_token"], family.title)

    def short(name: str) -> str | None:
        name = name.removeprefix(prefix)
        return None if name in names.unused else name

    held = table.by_short_name(tensors, short, family.title)
    entries = list(entries_of(config, family, patches=patches, channels=channels, classes=classes))
    return table.join_all(held, entries, {}, family.title)[TREE]


def to_huggingface(params: Params, config: ViTConfig, family: ImageEncoderFamily) -> dict[str, np.ndarray]:
    """Tensors by Transformers' names: of a class with the parameters' heads, or with none.

    Args:
      params: parameters of `ViT`.
      config: the model's shape.
      family: of the result.

    Returns:
      Copies, float32. `from_huggingface` converts them to the same bits.

    Raises: WeightsError for variants that the family does not have, and parameters that do not fit the config.
    """
    shape = checked_shape(params, config, family)
    tensors = table.split_all({TREE: params}, entries_of(config, family, **shape))
    outside, prefix = outside_of(family), f"{family.base}."
    if not any(name.startswith(outside) for name in tensors):
        return tensors
    return {name if name.startswith(outside) else prefix + name: tensor for name, tensor in tensors.items()}


def outside_of(family: ImageEncoderFamily) -> tuple[str, ...]:
    """The first parts of the names of tensors outside the encoder, for classes with a prefix for it."""
    heads = [f"{name}." for heads in family.heads.values() for name in heads]
    return (*heads, *([f"{family.names.projection}."] if family.names.projection else []))


def checked_shape(params: Params, config: ViTConfig, family: ImageEncoderFamily) -> dict[str, int]:
    """The numbers of patches, channels and classes of parameters of `ViT`, as `entries_of` takes them.

    Raises: WeightsError for variants that the family does not have.
    """
    not_with_head = [name for name in ("pooler_width", "projection_width") if HEAD in params]
    fixed = {**_FIXED, **family.fixed, **dict.fromkeys(not_with_head)}
    strange = [f"a {type(config).__name__}"] if type(config) is not ViTConfig else differing(config, fixed)
    if HEAD in params and not family.heads:
        strange += ["a head that reads the class token"]
    refuse_variants(family.title, strange)
    return {
        "classes": len(params[HEAD]["bias"]) if HEAD in params else 0,
        "patches": len(params["positions"]) - len(config.tokens),
        "channels": len(params["stem"]["project"]["kernel"]) // config.patch**2,
    }


TREE = "image encoder"
"""The name of the tree of parameters in the table."""


def entries_of(
    config: ViTConfig, family: ImageEncoderFamily, *, patches: int, channels: int, classes: int
) -> Iterator[TensorEntry]:
    """The table of an encoder. Args: as for `from_huggingface`."""
    names, width = family.names, config.width
    yield _projection(names.patches, config.patch, channels, width)
    if config.stem_bias:
        yield table.plain(TREE, ("stem", "project", "bias"), f"{names.patches}.bias", width)
    of_token, of_table = ((1,) * axes for axes in names.first_axes)
    for token in config.tokens:
        yield _reshaped((token,), names.tokens[token], (*of_token, width), (width,))
    rows = patches + len(config.tokens)
    yield _reshaped(("positions",), names.positions, (*of_table, rows, width), (rows, width))
    if config.embedding_norm:
        yield from table.norm(TREE, ("embedding_norm",), names.embedding_norm, width)
    yield from table.blocks(
        TREE,
        names.blocks,
        layers=config.num_layers,
        heads=config.num_heads,
        width=width,
        hidden=config.hidden_width,
        qkv_bias=config.qkv_bias,
    )
    yield from table.norm(TREE, ("final_norm",), names.final_norm, width)
    if config.pooler_width is not None:
        yield from table.dense(TREE, ("pooler",), (names.pooler,), width, (config.pooler_width,))
    if config.projection_width is not None:
        projected = (config.projection_width,)
        yield from table.dense(TREE, ("projection",), (names.projection,), width, projected, use_bias=False)
    if not classes:
        return
    heads = next(heads for heads in family.heads.values() if (len(heads) == 2) == (config.distillation == "head"))
    for ours, theirs in zip((HEAD, DISTILLATION_HEAD), heads, strict=False):
        yield from table.dense(TREE, (ours,), (theirs,), width, (classes,))


def _projection(name: str, patch: int, channels: int, width: int) -> TensorEntry:
    """The layer on patches: a matrix [P P R, D] here, a convolution [D, R, P, P] there."""

    def join(arrays: list[np.ndarray]) -> np.ndarray:
        return np.array(arrays[0].transpose(2, 3, 1, 0).reshape(-1, width), order="C")

    def split(array: np.ndarray) -> list[np.ndarray]:
        return [array.reshape(patch, patch, channels, width).transpose(3, 2, 0, 1)]

    shape = (width, channels, patch, patch)
    return TensorEntry(TREE, ("stem", "project", "kernel"), (f"{name}.weight",), (shape,), join, split)


def _reshaped(path: tuple[str, ...], name: str, theirs: tuple[int, ...], ours: tuple[int, ...]) -> TensorEntry:
    """A parameter that is one tensor with further axes of length 1."""

    def join(arrays: list[np.ndarray]) -> np.ndarray:
        return arrays[0].reshape(ours).copy()

    return TensorEntry(TREE, path, (name,), (theirs,), join, lambda array: [array.reshape(theirs)])
