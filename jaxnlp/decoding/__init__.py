"""Sampling, generation and beam search: they know a step function, not a model."""

from jaxnlp.public_names import lazily

__getattr__, __dir__ = lazily(__name__, __path__)
