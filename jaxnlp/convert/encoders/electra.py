"""ELECTRA, as Transformers stores it: a BERT whose embeddings may be narrower than the model.

A discriminator has a head that finds replaced tokens, a generator one that predicts masked tokens. Its classifier has a
pooler of its own, with GELU. Differs in training: there is no dropout before that pooler.
"""

from jaxnlp.convert.encoders.bert import FAMILY as BERT
from jaxnlp.convert.encoders.bert import FIELDS, FIXED, NAMES, SUPPORTED
from jaxnlp.convert.settings import model_settings

_FIELDS = {**FIELDS, "embedding_size": "embedding_width"}
_POOLER = "classifier.dense"

FAMILY = BERT._replace(
    title="ELECTRA",
    prefix="Electra",
    base="electra",
    outside=("generator_", "discriminator_", "classifier."),
    names=NAMES._replace(
        pooler=_POOLER,
        transform="generator_predictions.dense",
        norm="generator_predictions.LayerNorm",
        token_bias="generator_lm_head.bias",
        output="generator_lm_head",
        follows=None,
        replaced=("discriminator_predictions.dense", "discriminator_predictions.dense_prediction"),
    ),
    fields=_FIELDS,
    rules=model_settings(
        "electra",
        applied=tuple(_FIELDS),
        supported=SUPPORTED,
        ignored={
            "padding is masked": ("pad_token_id",),
            "heads, which are tensors of their own": (
                *("classifier_dropout", "summary_type", "summary_use_proj", "summary_activation"),
                "summary_last_dropout",
            ),
        },
    ),
    fixed={name: value for name, value in FIXED.items() if name != "embedding_width"}
    | {"pooler_activation": "gelu", "padding_id": None},
    classifier="classifier.out_proj.",
    classifier_pooler=_POOLER,
)
