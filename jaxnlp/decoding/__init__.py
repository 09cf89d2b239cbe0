"""Sampling, generation and beam search with the step function of any model."""

from jaxnlp.public_names import lazily

__getattr__, __dir__ = lazily(__name__, __path__)
