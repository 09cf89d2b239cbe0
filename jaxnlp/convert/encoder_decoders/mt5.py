"""mT5: T5 with gated feed-forward layers and an output layer of its own, whose logits are not scaled."""

from jaxnlp.convert.encoder_decoders.t5 import FAMILY as T5
from jaxnlp.convert.settings import of_model_type

FAMILY = T5._replace(
    title="mT5",
    architecture="MT5ForConditionalGeneration",
    rules=of_model_type(T5.rules, "mt5"),
    defaults={**T5.defaults, "feed_forward": ("gelu_tanh", True)},
    scales_logits=False,
)
