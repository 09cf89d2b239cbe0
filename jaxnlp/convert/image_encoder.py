"""Converts an image encoder's weights between the names of Hugging Face Transformers and the parameters of
`jaxnlp.models.vit`.

Axes that the library's glossary does not have: R channels, P rows or columns of a patch.
"""

from collections.abc import Iterator, Mapping

import numpy as np

from jaxnlp.convert import tensors as table
from jaxnlp.convert.image_encoders import ImageEncoderFamily
from jaxnlp.convert.tensors import BlockNames, TensorEntry, WeightsError
from jaxnlp.models.classifier import HEAD
from jaxnlp.models.vit import DISTILLATION_HEAD, ViTConfig
from jaxnlp.typing import Params

_TOKENS = {"class_token": "embeddings.cls_token", "distillation_token": "embeddings.distillation_token"}
_POSITIONS, _PROJECTION = "embeddings.position_embeddings", "embeddings.patch_embeddings.projection"
_POOLER, _UNUSED = "pooler.dense", "embeddings.mask_token"
_BLOCKS = BlockNames(
    block="encoder.layer.{}.",
    qkv=tuple(f"attention.attention.{name}" for name in ("query", "key", "value")),
    attention="attention.output.dense",
    attention_norm="layernorm_before",
    up="intermediate.dense",
    down="output.dense",
    feed_forward_norm="layernorm_after",
)
_FIXED = {"stem": "patches", "positions": "learned", "pooling": "cls"}


def heads_of(tensors: Mapping[str, np.ndarray], family: ImageEncoderFamily) -> tuple[str, ...]:
    """The names of the heads that the tensors have, without `.weight`; () = none.

    Args:
      tensors: of any shapes [...], by name.
      family: of the tensors.
    """
    held = [heads for heads in family.heads.values() if any(f"{name}.weight" in tensors for name in heads)]
    return held[0] if held else ()


def has_pooler(tensors: Mapping[str, np.ndarray]) -> bool:
    """Whether the tensors, of any shapes [...], have a pooler."""
    return any(name.endswith(f"{_POOLER}.weight") for name in tensors)


def from_huggingface(
    tensors: Mapping[str, np.ndarray],
    config: ViTConfig,
    family: ImageEncoderFamily,
    *,
    patches: int,
    channels: int,
    classes: int,
) -> Params:
    """Parameters of `ViT` that compute the same function; floats of any precision become float32.

    Args:
      tensors: tensors by name, with the names of the family in Transformers, with or without its prefix.
      config: the model's shape.
      family: of the tensors.
      patches: of an image.
      channels: R.
      classes: C; 0 = there is no head.

    Returns:
      Copies.

    Raises:
      WeightsError: listing tensors that are missing, unknown, not floats, not finite, or have other shapes.
    """
    prefix = table.prefix_of(tensors, ("", f"{family.base}."), _TOKENS["class_token"], family.title)

    def short(name: str) -> str | None:
        name = name.removeprefix(prefix)
        return None if name == _UNUSED else name

    held = table.by_short_name(tensors, short, family.title)
    entries = list(_entries(config, family, patches, channels, classes))
    return table.join_all(held, entries, {}, family.title)[_TREE]


def to_huggingface(params: Params, config: ViTConfig, family: ImageEncoderFamily) -> dict[str, np.ndarray]:
    """Tensors by Transformers' names: those of a class with the heads that the parameters have, or with none.

    Args:
      params: parameters of `ViT`.
      config: the model's shape.
      family: whose tensors these become.

    Returns:
      Copies, float32. `from_huggingface` converts them to the same bits.

    Raises:
      WeightsError: for variants that the family does not have, and parameters that do not fit the config.
    """
    fixed = _FIXED | ({"pooler_width": None} if HEAD in params else {})
    strange = [
        f"model.{name} = {getattr(config, name)}" for name, value in fixed.items() if getattr(config, name) != value
    ]
    if type(config) is not ViTConfig:
        strange = [f"a {type(config).__name__}"]
    if strange:
        raise WeightsError(f"Transformers' {family.title} does not support {', '.join(strange)}")
    classes = len(params[HEAD]["bias"]) if HEAD in params else 0
    patches = len(params["positions"]) - len(config.tokens)
    channels = len(params["stem"]["project"]["kernel"]) // config.patch**2
    tensors = table.split_all({_TREE: params}, _entries(config, family, patches, channels, classes))
    outside = tuple(f"{name}." for heads in family.heads.values() for name in heads)
    prefix = f"{family.base}." if classes else ""
    return {name if name.startswith(outside) else prefix + name: tensor for name, tensor in tensors.items()}


_TREE = "image encoder"


def _entries(
    config: ViTConfig, family: ImageEncoderFamily, patches: int, channels: int, classes: int
) -> Iterator[TensorEntry]:
    width = config.width
    yield _projection(config.patch, channels, width)
    yield table.plain(_TREE, ("stem", "project", "bias"), f"{_PROJECTION}.bias", width)
    for token in config.tokens:
        yield _reshaped((token,), _TOKENS[token], (1, 1, width), (width,))
    rows = patches + len(config.tokens)
    yield _reshaped(("positions",), _POSITIONS, (1, rows, width), (rows, width))
    yield from table.blocks(
        _TREE,
        _BLOCKS,
        layers=config.num_layers,
        heads=config.num_heads,
        width=width,
        hidden=config.hidden_width,
        qkv_bias=config.qkv_bias,
    )
    yield from table.norm(_TREE, ("final_norm",), "layernorm", width)
    if config.pooler_width is not None:
        yield from table.dense(_TREE, ("pooler",), (_POOLER,), width, (config.pooler_width,))
    names = next(heads for heads in family.heads.values() if (len(heads) == 2) == (config.distillation == "head"))
    for ours, theirs in zip((HEAD, DISTILLATION_HEAD), names, strict=False):
        if classes:
            yield from table.dense(_TREE, (ours,), (theirs,), width, (classes,))


def _projection(patch: int, channels: int, width: int) -> TensorEntry:
    """The layer on patches: a matrix [P P R, D] here, a convolution [D, R, P, P] there."""

    def join(arrays: list[np.ndarray]) -> np.ndarray:
        return np.array(arrays[0].transpose(2, 3, 1, 0).reshape(-1, width), order="C")

    def split(array: np.ndarray) -> list[np.ndarray]:
        return [array.reshape(patch, patch, channels, width).transpose(3, 2, 0, 1)]

    shape = (width, channels, patch, patch)
    return TensorEntry(_TREE, ("stem", "project", "kernel"), (f"{_PROJECTION}.weight",), (shape,), join, split)


def _reshaped(path: tuple[str, ...], name: str, theirs: tuple[int, ...], ours: tuple[int, ...]) -> TensorEntry:
    """A parameter that is one tensor with further axes of length 1."""

    def join(arrays: list[np.ndarray]) -> np.ndarray:
        return arrays[0].reshape(ours).copy()

    return TensorEntry(_TREE, path, (name,), (theirs,), join, lambda array: [array.reshape(theirs)])
