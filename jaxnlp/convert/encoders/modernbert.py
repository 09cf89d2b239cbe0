"""ModernBERT, as Transformers stores it: rotary positions, local layers, gated feed-forward layers and no biases.

Its classifier has its own pooler, with GELU and a normalisation; its classes for tokens and answers have it as a layer
of each token. Differs in training: dropout of the outputs of both branches, not of activations in feed-forward layers.
"""

from jaxnlp.convert.encoders import EncoderFamily, EncoderNames
from jaxnlp.convert.layer_kinds import SETTINGS
from jaxnlp.convert.settings import model_settings
from jaxnlp.convert.tensors import BlockNames

_FIELDS = {
    "num_hidden_layers": "num_layers",
    "num_attention_heads": "num_heads",
    "hidden_size": "width",
    "intermediate_size": "feed_forward_width",
    "max_position_embeddings": "max_positions",
    "local_attention": "local_window",
    "embedding_dropout": "dropout_rate",
    "attention_dropout": "attention_dropout_rate",
    "norm_eps": "epsilon",
    "classifier_pooling": "pooler_input",
}

FAMILY = EncoderFamily(
    title="ModernBERT",
    prefix="ModernBert",
    base="model",
    outside=("head.", "decoder.", "classifier."),
    names=EncoderNames(
        tokens="embeddings.tok_embeddings",
        positions=None,
        segments=None,
        embedding_norm="embeddings.norm",
        blocks=BlockNames(
            block="layers.{}.",
            qkv=("attn.Wqkv",),
            attention="attn.Wo",
            attention_norm="attn_norm",
            up="mlp.Wi",
            down="mlp.Wo",
            feed_forward_norm="mlp_norm",
            gate="mlp.Wi",
        ),
        pooler="head.dense",
        transform="head.dense",
        norm="head.norm",
        token_bias="decoder.bias",
        output="decoder",
        follows=None,
        projection="",
        replaced=None,
        final_norm="final_norm",
        pooler_norm="head.norm",
    ),
    fields=_FIELDS,
    rules=model_settings(
        "modernbert",
        applied=(*(name for name in _FIELDS if name != "classifier_pooling"), *SETTINGS),
        supported={
            "hidden_activation": ("gelu",),
            "classifier_activation": ("gelu",),
            "classifier_pooling": ("cls", "mean"),
            "decoder_bias": (True,),
            "position_embedding_type": ("absolute",),
            "rope_scaling": (None,),
            "per_layer_config": ({}, None),
            **dict.fromkeys(("attention_bias", "mlp_bias", "norm_bias", "classifier_bias"), (False,)),
        },
        ignored={
            "padding is masked": ("pad_token_id",),
            "training and its first parameters": ("initializer_cutoff_factor", "mlp_dropout"),
            "heads, which are tensors of their own": ("classifier_dropout",),
            "generated texts": ("cls_token_id",),
            "the same numbers, computed or returned in another way": (
                *("deterministic_flash_attn", "reference_compile", "repad_logits_with_grad"),
                *("sparse_prediction", "sparse_pred_ignore_index"),
            ),
            "no model of Transformers reads it": ("layer_norm_eps",),
        },
    ),
    fixed={
        "positions": "rotary",
        "pre_norm": True,
        "first_norm": False,
        "gated": True,
        "use_bias": False,
        "scale_embeddings": False,
        "pooler_activation": "gelu",
        "pooler_norm": True,
        "embedding_width": None,
        "num_segments": 0,
        "padding_id": None,
    },
    classifier="classifier.",
    classifier_pooler="head.dense",
    dropout=dict.fromkeys(
        ("ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering"), "classifier_dropout"
    ),
    reads_segments=False,
    defaults={
        "max_positions": 8_192,
        "epsilon": 1e-5,
        "dropout_rate": 0.0,
        "attention_dropout_rate": 0.0,
    },
    layer_kinds=True,
    answers="classifier.",
    dense_heads=False,
    values={"classifier_pooling": {"cls": "cls", "mean": "mean"}},
)
