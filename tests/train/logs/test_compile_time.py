import jax
import jax.numpy as jnp

from train.logs.compile_time import compile_seconds


def test_compilation_counts_and_running_does_not():
    function = jax.jit(lambda x: jnp.sin(x) * 3.25 + 0.125)
    before = compile_seconds()
    function(jnp.ones(7)).block_until_ready()
    compiled = compile_seconds()
    assert compiled > before
    function(jnp.ones(7)).block_until_ready()
    assert compile_seconds() == compiled
