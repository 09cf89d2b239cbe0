"""ViT, as Transformers stores it: the classifier reads the class token."""

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
    "qkv_bias": "qkv_bias",
    "hidden_dropout_prob": "dropout_rate",
    "attention_probs_dropout_prob": "attention_dropout_rate",
    "pooler_output_size": "pooler_width",
}
ACTIVATIONS = {"gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "relu": "relu"}

FAMILY = ImageEncoderFamily(
    title="ViT",
    base="vit",
    names=ImageEncoderNames(
        tokens={"class_token": "embeddings.cls_token", "distillation_token": "embeddings.distillation_token"},
        positions="embeddings.position_embeddings",
        patches="embeddings.patch_embeddings.projection",
        blocks=BlockNames(
            block="encoder.layer.{}.",
            qkv=tuple(f"attention.attention.{name}" for name in ("query", "key", "value")),
            attention="attention.output.dense",
            attention_norm="layernorm_before",
            up="intermediate.dense",
            down="output.dense",
            feed_forward_norm="layernorm_after",
        ),
        final_norm="layernorm",
        pooler="pooler.dense",
        unused=("embeddings.mask_token",),
    ),
    architectures=("ViTModel",),
    heads={"ForImageClassification": ("classifier",)},
    distillation=("none", "none"),
    fields=FIELDS,
    values={"hidden_act": ACTIVATIONS},
    rules=model_settings(
        "vit",
        applied=(*(name for name in FIELDS if name != "hidden_act"), "image_size", "num_channels", "id2label"),
        supported={
            "hidden_act": tuple(ACTIVATIONS),
            "pooler_act": ("tanh",),
            "problem_type": (None, "single_label_classification"),
        },
        ignored={
            "only masked images have it": ("encoder_stride",),
            "texts": ("tokenizer_class", "pad_token_id"),
        },
        texts=False,
    ),
    defaults={"activation": "gelu", "epsilon": 1e-12, "dropout_rate": 0.0, "pooler_width": None},
    preprocessor="ViTImageProcessor",
    fixed={"stem_bias": True, "embedding_norm": False, "projection_width": None},
)
