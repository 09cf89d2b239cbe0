"""Optax raises a Python float to an integer power in Adam's bias correction, which strict promotion refuses."""

from collections.abc import Iterator

import jax
import pytest


@pytest.fixture(autouse=True)
def standard_dtype_promotion() -> Iterator[None]:
    with jax.numpy_dtype_promotion("standard"):
        yield
