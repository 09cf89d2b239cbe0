"""Texts as sequences of token ids."""


class UnknownTokenError(ValueError):
    """A text holds what the vocabulary lacks; the message says what, and where it stands first."""
