"""RoBERTa, as Transformers stores it: a BERT whose positions do not count padding.

Its classifier has a pooler of its own. Differs in training: no dropout before the pooler.
"""

from jaxnlp.convert.encoders import EncoderFamily
from jaxnlp.convert.encoders.bert import FAMILY as BERT
from jaxnlp.convert.encoders.bert import FIELDS, FIXED, NAMES, SUPPORTED
from jaxnlp.convert.settings import model_settings


def like_roberta(title: str, prefix: str, model_type: str) -> EncoderFamily:
    """A family with RoBERTa's tensors and settings."""
    fields = {**FIELDS, "pad_token_id": "padding_id"}
    return BERT._replace(
        title=title,
        prefix=prefix,
        base="roberta",
        outside=("lm_head.", "classifier."),
        names=NAMES._replace(
            transform="lm_head.dense",
            norm="lm_head.layer_norm",
            token_bias="lm_head.bias",
            output="lm_head.decoder",
            follows=None,
        ),
        fields=fields,
        rules=model_settings(
            model_type,
            applied=tuple(fields),
            supported=SUPPORTED,
            ignored={"heads, which are tensors of their own": ("classifier_dropout",)},
        ),
        fixed=FIXED,
        classifier="classifier.out_proj.",
        classifier_pooler="classifier.dense",
    )


FAMILY = like_roberta("RoBERTa", "Roberta", "roberta")
