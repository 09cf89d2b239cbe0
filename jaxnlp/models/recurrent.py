"""The base of configs of recurrent language models."""

import dataclasses

from jaxnlp.models import ModelConfig


@dataclasses.dataclass(frozen=True)
class RecurrentModelConfig(ModelConfig):
    """The base of configs of recurrent language models, which the task RecurrentLanguageModel requires.

    The module has `read(tokens, states)`, which continues a text, and `empty_cache(batch)`, the states before its first
    token.
    """
