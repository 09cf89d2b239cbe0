import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxnlp.ops import embeddings as module
from jaxnlp.ops.devices import compile_for
from jaxnlp.ops.embeddings import BLOCK, embed

VOCABULARY, WIDTH = 40, 3
GENERATOR = np.random.default_rng(0)
TABLE = GENERATOR.normal(size=(VOCABULARY, WIDTH))
IDS = {
    # From one word that fills several blocks to words that each occur once, in 3 blocks, the last with padding.
    "one word": np.full(300, 7),
    "frequent words": GENERATOR.choice(VOCABULARY, 300, p=np.arange(1, 41)[::-1] ** 3 / (np.arange(1, 41) ** 3).sum()),
    "long runs": np.repeat([5, 1, 39, 0], [130, 20, 149, 1]),
    "whole blocks": np.repeat([3, 2, 1], [BLOCK, BLOCK, 44]),
    "others": GENERATOR.integers(-VOCABULARY - 5, VOCABULARY + 5, 300),
    "the last": np.full(300, VOCABULARY - 1),
}


@functools.partial(jax.jit, static_argnames="dtype")
def rows_and_gradient(table, ids, upstream, dtype=None):
    rows, pull = jax.vjp(lambda table: embed(table, ids, dtype), table)
    return rows, pull(upstream)[0]


def on_a_gpu(*arguments, **options):
    with compile_for("gpu"):
        program = rows_and_gradient.lower(*arguments, **options)
    return program.compile()(*arguments)


def random_upstream(ids, dtype=np.float64):
    return np.random.default_rng(1).normal(size=(*ids.shape, WIDTH)).astype(dtype)


@pytest.mark.parametrize("run", [rows_and_gradient, on_a_gpu])
@pytest.mark.parametrize("name", IDS)
def test_rows_and_gradient_are_those_of_a_loop(run, name):
    ids = IDS[name].astype(np.int32)
    upstream, expected = random_upstream(ids), np.zeros_like(TABLE)
    with jax.enable_x64(True):
        rows, gradient = run(TABLE, ids, upstream)
    for position, (word, row) in enumerate(zip(ids, rows, strict=True)):
        if -VOCABULARY <= word < VOCABULARY:
            np.testing.assert_array_equal(row, TABLE[word])
            expected[word] += upstream[position]
        else:
            assert np.isnan(row).all()
    np.testing.assert_allclose(gradient, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("run", [rows_and_gradient, on_a_gpu])
def test_short_rows_are_summed_in_float32(run):
    table, ids = TABLE.astype(np.float32), np.zeros(1000, np.int32)
    upstream = jnp.ones((1000, WIDTH), jnp.bfloat16)
    rows, gradient = run(table, ids, upstream, dtype="bfloat16")
    assert (rows.dtype, gradient.dtype) == (jnp.bfloat16, np.float32)
    np.testing.assert_array_equal(rows[0], table[0].astype(jnp.bfloat16))
    np.testing.assert_array_equal(gradient[0], 1000.0)  # in bfloat16 it would be 256
    assert not np.asarray(gradient[1:]).any()


@pytest.mark.sweep(1)
@pytest.mark.parametrize("shape", [(), (0,), (2, 5)])
def test_ids_may_have_any_shape(shape):
    ids = np.random.default_rng(2).integers(0, VOCABULARY, shape).astype(np.int32)
    arguments = (TABLE.astype(np.float32), ids, random_upstream(ids, np.float32))
    found, expected = on_a_gpu(*arguments), rows_and_gradient(*arguments)
    assert found[0].shape == (*shape, WIDTH)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6), found, expected)


def test_a_gpu_adds_nothing_to_the_same_row_twice():
    ids = IDS["one word"].astype(np.int32)
    with compile_for("gpu"):
        text = rows_and_gradient.lower(TABLE.astype(np.float32), ids, random_upstream(ids, np.float32)).as_text()
    assert scatters(text) == ["true"]


@pytest.mark.parametrize(("platform", "divided"), [("gpu", True), ("tpu", False), ("cpu", False)])
def test_where_xla_divides_a_scatter_among_devices_it_is_a_scatter(monkeypatch, platform, divided):
    monkeypatch.setattr(module, "is_divided", lambda: divided)
    ids = IDS["one word"].astype(np.int32)
    table, upstream = TABLE.astype(np.float32), jnp.ones((len(ids), WIDTH), jnp.bfloat16)
    with compile_for(platform):
        # Another function, since the answer is in no key of JAX's caches.
        program = jax.jit(lambda table: jax.vjp(lambda table: embed(table, ids, "bfloat16"), table)[1](upstream))
        text = program.lower(table).as_text()
    assert scatters(text) == ["false"]
    assert "stablehlo.sort" not in text
    np.testing.assert_array_equal(program(table)[0][7], 300.0)


def scatters(text):
    """Of each scatter, whether its rows differ."""
    return re.findall(r"stablehlo\.scatter.*?unique_indices = (\w+)", text, re.DOTALL)


def test_what_is_no_table_and_no_ids_is_refused():
    with pytest.raises(ValueError, match=re.escape("expected table [V, D], got table (40,)")):
        embed(TABLE[:, 0], IDS["one word"])
    with pytest.raises(ValueError, match="ids must be int, got float32"):
        embed(TABLE, IDS["one word"].astype(np.float32))
