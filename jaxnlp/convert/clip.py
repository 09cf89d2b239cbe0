"""Converts the weights of a CLIP, or of only its text encoder, between the names of Hugging Face Transformers and the
parameters of `jaxnlp.models.clip`."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from jaxnlp.convert import decoder_weights, image_encoder_weights
from jaxnlp.convert import tensors as table
from jaxnlp.convert.decoders import DecoderFamily, DecoderNames
from jaxnlp.convert.image_encoders.clip_vision_model import (
    ACTIVATIONS,
    BLOCKS,
    DEFAULTS,
    FIELDS,
    IGNORED,
)
from jaxnlp.convert.image_encoders.clip_vision_model import FAMILY as IMAGE
from jaxnlp.convert.settings import model_settings
from jaxnlp.convert.shapes import differing, refuse_variants
from jaxnlp.convert.tensors import TensorEntry, WeightsError
from jaxnlp.models.clip import CLIPConfig, TextEncoderConfig
from jaxnlp.typing import Params

TITLE, MODEL_TYPE, TEXT_TYPE, IMAGE_TYPE = "CLIP", "clip", "clip_text_model", "clip_vision_model"
ARCHITECTURE = "CLIPModel"
TEXT_ARCHITECTURES = ("CLIPTextModel", "CLIPTextModelWithProjection")
"""The classes of a text encoder: without a projection, and with one."""
HIGHEST = 2
"""The eos_token_id for which a text's vector is that of its token with the highest id."""
_TEXT_FIELDS = {
    **{theirs: ours for theirs, ours in FIELDS.items() if theirs != "patch_size"},
    "max_position_embeddings": "context_length",
    "eos_token_id": "end_id",
}
TEXT = DecoderFamily(
    title="CLIP text encoder",
    config=TextEncoderConfig,
    architecture=TEXT_ARCHITECTURES[1],
    base="text_model",
    names=DecoderNames(
        tokens="embeddings.token_embedding",
        positions="embeddings.position_embedding",
        blocks=BLOCKS,
        norm="final_layer_norm",
        head="",
        buffers=(),
    ),
    transposed=True,
    fields=_TEXT_FIELDS,
    values={"hidden_act": ACTIVATIONS},
    rules=model_settings(
        TEXT_TYPE,
        applied=tuple(name for name in _TEXT_FIELDS if name != "hidden_act"),
        supported={"hidden_act": tuple(ACTIVATIONS)},
        ignored={**IGNORED, "texts": ("pad_token_id",)},
    ),
    defaults={
        **{**DEFAULTS, "num_heads": 8, "width": 512, "feed_forward_width": 2_048},
        **{"context_length": 77, "end_id": 49_407},
    },
    fixed={"use_bias": True, "tie_embeddings": True, "embedding_dropout_rate": 0.0, "residual_dropout_rate": 0.0},
    end="",
)
RULES = model_settings(
    MODEL_TYPE,
    applied=("text_config", "text_config_dict", "vision_config", "vision_config_dict", "projection_dim"),
    supported={},
    ignored={**IGNORED, "the first parameters": ("logit_scale_init_value",)},
    texts=False,
)
"""Rules for a CLIP's config.json."""
_SCALE, _PROJECTION = "logit_scale", "text_projection"
_BUFFERS = ("text_model.embeddings.position_ids", "vision_model.embeddings.position_ids")


def from_huggingface(
    tensors: Mapping[str, np.ndarray],
    config: CLIPConfig | TextEncoderConfig,
    vocabulary_size: int,
    *,
    patches: int = 0,
    channels: int = 0,
) -> Params:
    """Parameters of `CLIP`, or of `TextEncoder`, for the same function; floats of any precision become float32.

    Args:
      tensors: by name, with the names of Transformers; a text encoder's may have no prefix.
      config: the model's shape.
      vocabulary_size: V, the number of embeddings.
      patches, channels: of an image.

    Raises: WeightsError listing tensors that are missing, unknown, not floats, not finite, or have other shapes.
    """
    both = isinstance(config, CLIPConfig)
    base, title = f"{TEXT.base}.", TITLE if both else TEXT.title
    prefix = table.prefix_of(tensors, (base,) if both else (base, ""), f"{TEXT.names.tokens}.weight", title)

    def short(name: str) -> str | None:
        if not both and not name.startswith(f"{_PROJECTION}."):
            name = base + name.removeprefix(prefix)
        return None if name in _BUFFERS else name

    held = table.by_short_name(tensors, short, title)
    entries = list(_entries(config, vocabulary_size, {"patches": patches, "channels": channels}))
    trees = table.join_all(held, entries, {}, title)
    if not both:
        return trees[TEXT.base]
    return {**trees[MODEL_TYPE], "text": trees[TEXT.base], "image": trees[IMAGE.base]}


def to_huggingface(params: Params, config: CLIPConfig | TextEncoderConfig) -> dict[str, np.ndarray]:
    """Tensors by Transformers' names: of a CLIPModel, or of a class of its text encoder.

    Args:
      params: parameters of `CLIP` or `TextEncoder`.
      config: the model's shape.

    Returns:
      Copies, float32. `from_huggingface` converts them to the same bits.

    Raises: WeightsError for variants that Transformers does not have, and parameters that do not fit the config.
    """
    text = config.text if isinstance(config, CLIPConfig) else config
    strange = differing(text, TEXT.fixed, prefix="")
    strange += [f"end_id = {HIGHEST}"] if text.end_id == HIGHEST else []
    refuse_variants(TEXT.title, strange)
    if isinstance(config, CLIPConfig):
        if config.text.projection_width is None or config.image.projection_width is None:
            raise WeightsError(f"Transformers' {TITLE} does not support encoders without a projection")
        shape = image_encoder_weights.checked_shape(params["image"], config.image, IMAGE)
        trees = {MODEL_TYPE: {_SCALE: params[_SCALE]}, TEXT.base: params["text"], IMAGE.base: params["image"]}
    else:
        shape, trees = {}, {TEXT.base: params}
    size = len(trees[TEXT.base]["decoder"]["tokens"]["embedding"])
    tensors = table.split_all(trees, _entries(config, size, shape))
    if not isinstance(config, CLIPConfig) and config.projection_width is None:
        tensors = {name.removeprefix(f"{TEXT.base}."): tensor for name, tensor in tensors.items()}
    return tensors


def _entries(
    config: CLIPConfig | TextEncoderConfig, vocabulary_size: int, shape: Mapping[str, int]
) -> Iterator[TensorEntry]:
    """The table, with the names of a CLIPModel. Args: shape: patches and channels of an image."""
    text = config.text if isinstance(config, CLIPConfig) else config
    for entry in decoder_weights.entries_of(text, TEXT, vocabulary_size):
        yield _inside(TEXT.base, entry, "decoder")
    if text.projection_width is not None:
        projected, width = (text.projection_width,), text.width
        yield from table.dense(TEXT.base, ("projection",), (_PROJECTION,), width, projected, use_bias=False)
    if isinstance(config, CLIPConfig):
        outside = image_encoder_weights.outside_of(IMAGE)
        options: dict[str, Any] = {**shape, "classes": 0}
        for entry in image_encoder_weights.entries_of(config.image, IMAGE, **options):
            yield entry._replace(tree=IMAGE.base) if entry.names[0].startswith(outside) else _inside(IMAGE.base, entry)
        yield table.plain(MODEL_TYPE, (_SCALE,), _SCALE)


def _inside(base: str, entry: TensorEntry, *path: str) -> TensorEntry:
    """An entry with a prefix of its tensors' names, which is also its tree, and with the first parts of its path."""
    names = tuple(f"{base}.{name}" for name in entry.names)
    return entry._replace(tree=base, path=(*path, *entry.path), names=names)
