"""Checks of arguments, with messages of one form: what is expected, and the shapes or types of the arguments."""

import jax
import jax.numpy as jnp
import numpy as np


def expect(fits: bool, expected: str, **arrays: jax.Array | None) -> None:
    """Raises ValueError with what is expected and the shapes of all arrays, unless `fits`."""
    if not fits:
        shapes = ", ".join(f"{name} {array.shape}" for name, array in arrays.items() if array is not None)
        raise ValueError(f"expected {expected}, got {shapes}")


class UnavailableError(ValueError):
    """The chosen implementation is not available on this machine or for these arrays."""


def expect_float(**arrays: jax.Array | None) -> None:
    """Raises ValueError unless all arrays are floating-point. None is not checked."""
    dtypes = {name: array.dtype for name, array in arrays.items() if array is not None}
    if not all(jnp.issubdtype(dtype, jnp.floating) for dtype in dtypes.values()):
        raise ValueError(f"expected float arrays, got {', '.join(f'{name} {dtype}' for name, dtype in dtypes.items())}")


def expect_tokens(tokens: jax.typing.ArrayLike, vocabulary_size: int, name: str) -> None:
    """Raises ValueError with the first bad position unless tokens are integers [B, T] in [0, V).

    Under jit only the shape and the type are checked.
    """
    shape, dtype = jnp.shape(tokens), jnp.result_type(tokens)
    if len(shape) != 2 or not jnp.issubdtype(dtype, jnp.integer):
        raise ValueError(f"expected {name} as tokens [B, T] of int, got {dtype} {list(shape)}")
    if isinstance(tokens, jax.core.Tracer):
        return
    values = np.asarray(tokens)
    strange = np.argwhere((values < 0) | (values >= vocabulary_size))
    if len(strange):
        row, position = strange[0]
        raise ValueError(
            f"the model's tokens are 0 to {vocabulary_size - 1}, but {name} has {values[row, position]} in row {row}, "
            f"position {position}"
        )
