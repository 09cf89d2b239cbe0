"""CLIP's image encoder: a ViT with normalised embeddings, and a layer on patches without bias.

A class with a projection computes the vectors that a CLIP compares with those of texts.
"""

from collections.abc import Mapping
from typing import Any

from jaxnlp.convert.image_encoders import ImageEncoderFamily, ImageEncoderNames
from jaxnlp.convert.settings import model_settings
from jaxnlp.convert.tensors import BlockNames

FIELDS = {
    "num_hidden_layers": "num_layers",
    "num_attention_heads": "num_heads",
    "hidden_size": "width",
    "intermediate_size": "feed_forward_width",
    "patch_size": "patch",
    "hidden_act": "activation",
    "layer_norm_eps": "epsilon",
    "attention_dropout": "attention_dropout_rate",
    "projection_dim": "projection_width",
}
"""Settings of an image encoder."""
ACTIVATIONS = {
    "quick_gelu": "quick_gelu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}
BLOCKS = BlockNames(
    block="encoder.layers.{}.",
    qkv=("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    attention="self_attn.out_proj",
    attention_norm="layer_norm1",
    up="mlp.fc1",
    down="mlp.fc2",
    feed_forward_norm="layer_norm2",
)
IGNORED = {
    "training and its first parameters": ("initializer_factor", "dropout"),
    "texts": ("tokenizer_class", "pad_token_id"),
}
DEFAULTS: Mapping[str, Any] = {
    **{"num_layers": 12, "projection_width": 512, "activation": "quick_gelu", "epsilon": 1e-5},
    "attention_dropout_rate": 0.0,
}
"""Values of both encoders that a config.json may leave out."""

FAMILY = ImageEncoderFamily(
    title="CLIP image encoder",
    base="vision_model",
    names=ImageEncoderNames(
        tokens={"class_token": "embeddings.class_embedding"},
        positions="embeddings.position_embedding.weight",
        patches="embeddings.patch_embedding",
        blocks=BLOCKS,
        final_norm="post_layernorm",
        pooler="",
        unused=("embeddings.position_ids",),
        first_axes=(0, 0),
        embedding_norm="pre_layrnorm",
        projection="visual_projection",
    ),
    architectures=("CLIPVisionModel", "CLIPVisionModelWithProjection"),
    heads={},
    distillation=("none",),
    fields=FIELDS,
    values={"hidden_act": ACTIVATIONS},
    rules=model_settings(
        "clip_vision_model",
        applied=(*(name for name in FIELDS if name != "hidden_act"), "image_size", "num_channels"),
        supported={"hidden_act": tuple(ACTIVATIONS)},
        ignored=IGNORED,
        texts=False,
    ),
    defaults={
        **DEFAULTS,
        "num_heads": 12,
        "width": 768,
        "feed_forward_width": 3_072,
        "patch": 32,
        "dropout_rate": 0.0,
    },
    preprocessor="CLIPImageProcessor",
    fixed={"stem_bias": False, "qkv_bias": True, "embedding_norm": True, "pooler_width": None},
)
