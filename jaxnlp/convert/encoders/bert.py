"""BERT's names in Transformers. `convert.pretrained_encoder` reads a folder, `convert.encoder_weights` its weights."""

from collections.abc import Mapping
from typing import Any

from jaxnlp.convert.encoders import EncoderFamily, EncoderNames
from jaxnlp.convert.settings import model_settings
from jaxnlp.convert.tensors import BlockNames

FIELDS = {
    "num_hidden_layers": "num_layers",
    "num_attention_heads": "num_heads",
    "hidden_size": "width",
    "intermediate_size": "feed_forward_width",
    "max_position_embeddings": "max_positions",
    "type_vocab_size": "num_segments",
    "hidden_dropout_prob": "dropout_rate",
    "attention_probs_dropout_prob": "attention_dropout_rate",
    "layer_norm_eps": "epsilon",
}
NAMES = EncoderNames(
    tokens="embeddings.word_embeddings",
    positions="embeddings.position_embeddings",
    segments="embeddings.token_type_embeddings",
    embedding_norm="embeddings.LayerNorm",
    blocks=BlockNames(
        block="encoder.layer.{}.",
        qkv=("attention.self.query", "attention.self.key", "attention.self.value"),
        attention="attention.output.dense",
        attention_norm="attention.output.LayerNorm",
        up="intermediate.dense",
        down="output.dense",
        feed_forward_norm="output.LayerNorm",
    ),
    pooler="pooler.dense",
    transform="cls.predictions.transform.dense",
    norm="cls.predictions.transform.LayerNorm",
    token_bias="cls.predictions.bias",
    output="cls.predictions.decoder",
    follows="cls.seq_relationship",
    projection="embeddings_project",
    replaced=None,
)
SUPPORTED: Mapping[str, tuple[Any, ...]] = {
    "hidden_act": ("gelu",),
    "position_embedding_type": ("absolute",),
    "per_layer_config": ({}, None),
}
FIXED = {
    "positions": "learned",
    "pre_norm": False,
    "scale_embeddings": False,
    "pooler_activation": "tanh",
    "embedding_width": None,
    "local_layers": (),
    "gated": False,
    "use_bias": True,
    "pooler_input": "cls",
    "pooler_norm": False,
}

FAMILY = EncoderFamily(
    title="BERT",
    prefix="Bert",
    base="bert",
    outside=("cls.",),
    names=NAMES,
    fields=FIELDS,
    rules=model_settings(
        "bert",
        applied=tuple(FIELDS),
        supported=SUPPORTED,
        ignored={
            "padding is masked": ("pad_token_id",),
            "heads, which are tensors of their own": ("classifier_dropout",),
            "no model of Transformers reads it": (
                *("directionality", "pooler_fc_size", "pooler_num_attention_heads", "pooler_num_fc_layers"),
                *("pooler_size_per_head", "pooler_type"),
            ),
        },
    ),
    fixed={**FIXED, "padding_id": None},
    classifier="classifier.",
    classifier_pooler="pooler.dense",
    dropout=dict.fromkeys(
        ("ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering"), "classifier_dropout"
    ),
)
