"""Pure functions: no Linen, no state."""

from jaxnlp.public_names import lazily

__getattr__, __dir__ = lazily(__name__, __path__)
