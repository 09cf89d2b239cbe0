"""XLM-RoBERTa, as Transformers stores it: a RoBERTa of many languages, with another tokenizer."""

from jaxnlp.convert.encoders.roberta import like_roberta

FAMILY = like_roberta("XLM-RoBERTa", "XLMRoberta", "xlm-roberta")
