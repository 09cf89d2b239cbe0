"""The shapes of programs, whose axes have letters."""

import doctest

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxnlp.inference import exportable
from jaxnlp.inference.exportable import Axes, axes_of_batches, flat
from jaxnlp.nn.cache import KVCache


def batch(rows, length):
    return {
        "tokens": np.zeros((rows, 2, length), np.int32),
        "mask": np.zeros((rows, length), bool),
        "images": np.zeros((rows, 4, 4, 3), np.uint8),
        "loss_mask": np.zeros(rows, bool),
    }


def test_the_axes_of_a_batch_are_those_that_change_with_its_rows_and_length():
    axes, inputs = axes_of_batches(batch, ("mask", "tokens", "images"), longest=7, shortest=2)
    assert {name: str(shape.shape) for name, shape in inputs.items()} == {
        "mask": "(B, T)",
        "tokens": "(B, 2, T)",
        "images": "(B, 4, 4, 3)",
    }
    assert [shape.dtype for shape in inputs.values()] == [bool, np.int32, np.uint8]
    assert axes.limits == {"T": (2, 7)}


def test_inputs_without_a_length_have_no_limit():
    axes, inputs = axes_of_batches(batch, ("images",), longest=7)
    assert axes.limits == {}
    assert inputs.keys() == {"images"}


def test_a_program_refuses_sizes_outside_its_limits():
    axes = Axes(T=(2, 4))
    program = jax.export.export(jax.jit(lambda x: x + 1))(axes("B, T"))
    np.testing.assert_array_equal(program.call(jnp.zeros((3, 4), int)), np.ones((3, 4)))
    for length in (1, 5):
        with pytest.raises(ValueError, match="do not match the symbolic shape constraint T"):
            program.call(jnp.zeros((3, length), int))


def test_a_cache_becomes_a_list_of_arrays_and_a_cache_again():
    cache = KVCache(((jnp.zeros((1, 2)), jnp.ones((1, 2))),), jnp.zeros((), int))
    leaves, unflatten = flat(cache)
    assert [leaf.shape for leaf in leaves] == [(1, 2), (1, 2), ()]
    again = unflatten(tuple(leaves))
    assert isinstance(again, KVCache)
    assert again.layers[0][1] is leaves[1]


def test_the_example_of_the_docstring_runs():
    assert doctest.testmod(exportable).attempted > 0
    assert doctest.testmod(exportable).failed == 0
