"""What public functions refuse, in one form: what is expected, and the shapes or types that came."""

import jax
import jax.numpy as jnp
import numpy as np


def expect(fits: bool, expected: str, **arrays: jax.Array | None) -> None:
    """Raises ValueError unless it fits, with what is expected and each array's shape; None is left out."""
    if not fits:
        shapes = ", ".join(f"{name} {array.shape}" for name, array in arrays.items() if array is not None)
        raise ValueError(f"expected {expected}, got {shapes}")


def expect_float(**arrays: jax.Array | None) -> None:
    """Raises ValueError unless all arrays, but for those that are None, hold floating-point numbers."""
    dtypes = {name: array.dtype for name, array in arrays.items() if array is not None}
    if not all(jnp.issubdtype(dtype, jnp.floating) for dtype in dtypes.values()):
        raise ValueError(f"expected float arrays, got {', '.join(f'{name} {dtype}' for name, dtype in dtypes.items())}")


def expect_tokens(tokens: jax.typing.ArrayLike, vocabulary_size: int, name: str) -> None:
    """Raises ValueError for a token outside [0, V), with its place. Within jit nobody can look, and all are taken."""
    if isinstance(tokens, jax.core.Tracer):
        return
    tokens = np.asarray(tokens)
    strange = np.argwhere((tokens < 0) | (tokens >= vocabulary_size))
    if len(strange):
        row, place = strange[0]
        raise ValueError(
            f"the model's tokens are 0 to {vocabulary_size - 1}, but {name} has {tokens[row, place]} in row {row}, "
            f"position {place}"
        )
