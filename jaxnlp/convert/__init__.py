"""Conversion of weights from and to other libraries."""

from jaxnlp.convert.folders import PretrainedError
from jaxnlp.convert.model_types import exported_task, has_weights, is_pretrained, pretrained_types
from jaxnlp.convert.new_tokens import rows_of_last_tokens, with_new_tokens
from jaxnlp.convert.pretrained_encoder import read_pretrained, save_pretrained

__all__ = [
    "PretrainedError",
    "exported_task",
    "has_weights",
    "is_pretrained",
    "pretrained_types",
    "read_pretrained",
    "rows_of_last_tokens",
    "save_pretrained",
    "with_new_tokens",
]
