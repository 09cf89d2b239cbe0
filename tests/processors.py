"""Processors of nothing but sizes, to build models with."""

from types import SimpleNamespace


def sized(size):
    """The processor of a language model with that many tokens."""
    return SimpleNamespace(size=size)


def translating(source, target=None):
    """The processor of a translator; None = one vocabulary of both."""
    target = source if target is None else target
    return SimpleNamespace(source=sized(source), target=sized(target), shared=source == target)


def of_parts(size, parts):
    """The processor of an encoder with a head for each part."""
    return SimpleNamespace(vocabulary=sized(size), parts=tuple(parts))
