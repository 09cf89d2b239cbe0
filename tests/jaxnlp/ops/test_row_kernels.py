"""By the example of flash attention, whose kernels XLA cannot divide."""

import functools

import jax
import numpy as np
import pytest

from jaxnlp.ops.devices import compile_for
from jaxnlp.ops.flash import flash_attention
from jaxnlp.typing import BATCH_AXIS


@pytest.mark.thorough
@pytest.mark.parametrize("platform", ["gpu", "tpu"])
@pytest.mark.parametrize("how", ["jit", "shard_map", "pmap", "vmap"])
def test_shards_compute_what_the_whole_batch_does(devices, how, platform):
    shards, rows = len(devices), 2
    generator = np.random.default_rng(0)
    qkv = generator.normal(size=(shards * rows, 20, 3, 1, 16)).astype(np.float32)
    upstream = generator.normal(size=(shards * rows, 20, 1, 16)).astype(np.float32)
    arrays = (qkv, upstream, generator.random((shards * rows, 20)) < 0.7)
    settings = {"dropout_rate": 0.5, "dropout_key": jax.random.key(5)}

    @jax.jit
    def of_rows(qkv, upstream, key_mask, first_row=0):
        place = {"key_mask": key_mask, "first_row": first_row, "interpret": True}
        with compile_for(platform):
            y, vjp = jax.vjp(functools.partial(flash_attention, **place, **settings), qkv)
            return y, vjp(upstream)

    def of_a_shard(qkv, *others):
        return of_rows(qkv, *others, jax.lax.axis_index(BATCH_AXIS) * len(qkv))

    if how in ("jit", "shard_map"):
        mesh = jax.sharding.Mesh(np.array(devices), (BATCH_AXIS,))
        by_rows, function = jax.NamedSharding(mesh, jax.P(BATCH_AXIS)), of_rows
        if how == "shard_map":
            rows_of = jax.P(BATCH_AXIS)
            function = jax.shard_map(of_a_shard, mesh=mesh, in_specs=rows_of, out_specs=rows_of, check_vma=False)
        program = jax.jit(function).lower(*jax.device_put(arrays, by_rows)).compile()
        found = program(*jax.device_put(arrays, by_rows))
        assert not any(word in program.as_text() for word in ("all-gather", "all-reduce", "all-to-all"))
    else:
        mapped = jax.pmap(of_a_shard, BATCH_AXIS) if how == "pmap" else jax.vmap(of_a_shard, axis_name=BATCH_AXIS)
        found = mapped(*(x.reshape(shards, rows, *x.shape[1:]) for x in arrays))
    for x, expected in zip(jax.tree.leaves(found), jax.tree.leaves(of_rows(*arrays)), strict=True):
        np.testing.assert_allclose(np.asarray(x).reshape(expected.shape), expected, atol=1e-6)
