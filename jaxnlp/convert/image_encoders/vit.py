"""ViT, as Transformers stores it: the classifier reads the class token."""

from jaxnlp.convert.image_encoders import ImageEncoderFamily
from jaxnlp.convert.settings import model_settings

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
)
