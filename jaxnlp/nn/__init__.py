"""Linen building blocks, thin wrappers of ops."""

from jaxnlp.public_names import lazily

__getattr__, __dir__ = lazily(__name__, __path__)
