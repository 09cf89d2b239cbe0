"""Model families, one a file: its frozen Config, its Module."""

import dataclasses

import flax.linen as nn


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """What every family's Config is: frozen, hashable, and able to build its module."""

    def build(self, vocabulary_size: int) -> nn.Module:
        """The module for a vocabulary of that size."""
        raise TypeError(f"{type(self).__name__} describes no model: it does not define build()")

    def frozen(self, path: tuple[str, ...]) -> bool:
        """Whether training leaves a parameter as it is, such as that of `("blocks", "attention", "qkv", "kernel")`."""
        return False
