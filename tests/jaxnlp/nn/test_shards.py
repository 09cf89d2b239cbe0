import flax.linen as nn
import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from jaxnlp.nn.shards import Shard, gathered, gathered_in
from jaxnlp.typing import BATCH_AXIS, MODEL_AXIS

X = np.random.default_rng(0).normal(size=(8, 12)).astype(np.float32)
W = np.random.default_rng(1).normal(size=(12, 4)).astype(np.float32)


def loss(w, x):
    return ((x @ w) ** 2).sum()


@pytest.mark.parametrize("spec", [("data", None), (None, "data"), ("model", "data"), ("data", "model")], ids=str)
def test_the_gradient_of_gathered_shards_is_that_of_the_whole_added_up_over_the_devices(spec, devices):
    mesh = jax.sharding.Mesh(np.array(devices).reshape(4, 2), (BATCH_AXIS, MODEL_AXIS))
    shards = P(*(name if name == BATCH_AXIS else None for name in spec))

    def of_rows(w, x):
        return jax.grad(lambda w: loss(Shard(w, BATCH_AXIS, spec).gathered(), x))(w)

    mapped = jax.shard_map(
        of_rows, mesh=mesh, in_specs=(shards, P(BATCH_AXIS)), out_specs=shards, axis_names={BATCH_AXIS}, check_vma=False
    )
    placed = jax.device_put(W, NamedSharding(mesh, P(*spec)))
    program = jax.jit(mapped).lower(placed, X).compile()
    np.testing.assert_allclose(program(placed, X), jax.grad(loss)(W, X), rtol=1e-4)
    assert program.as_text().count(" all-gather(") == program.as_text().count(" reduce-scatter(") == 1


def test_shards_that_are_rounded_before_they_are_gathered_give_the_same_bits(devices):
    """Half as much is gathered. Gradients are added up in the type of the shards."""
    mesh, inputs = jax.sharding.Mesh(np.array(devices[:4]), (BATCH_AXIS,)), (W, jax.numpy.asarray(X, "bfloat16"))
    rows = P(BATCH_AXIS)

    def program(dtype):
        def of_rows(w, x):
            def of_shard(w):
                return loss(Shard(w, BATCH_AXIS, (BATCH_AXIS, None)).gathered(dtype).astype("bfloat16"), x)

            return jax.grad(of_shard)(w)

        mapped = jax.shard_map(of_rows, mesh=mesh, in_specs=(rows, rows), out_specs=rows, check_vma=False)
        return jax.jit(mapped).lower(*inputs).compile()

    whole, rounded = program(None), program("bfloat16")
    np.testing.assert_array_equal(rounded(*inputs), whole(*inputs))
    lines = [line for name in EXCHANGES for line in rounded.as_text().splitlines() if f" {name}(" in line]
    assert [line.split(" = ")[1].split("[")[0] for line in lines] == ["u16", "f32"]


EXCHANGES = "all-gather", "reduce-scatter"


class Outer(nn.Module):
    """A layer inside which parameters may be shards."""

    @nn.compact
    def __call__(self, x):
        return gathered_in(nn.Dense(4, name="inner"), lambda module, x: module(x), x, activations=X.dtype)


def test_a_layer_computes_with_its_gathered_shards_what_it_does_with_the_whole(devices):
    mesh = jax.sharding.Mesh(np.array(devices[:4]), (BATCH_AXIS,))
    expected, variables = Outer().init_with_output(jax.random.key(0), X)

    def of_rows(kernel, bias, x):
        inner = {"kernel": Shard(kernel, BATCH_AXIS, (BATCH_AXIS, None)), "bias": bias}
        return Outer().apply({"params": {"inner": inner}}, x)

    rows = P(BATCH_AXIS)
    run = jax.shard_map(of_rows, mesh=mesh, in_specs=(rows, P(), rows), out_specs=rows, check_vma=False)
    inner = variables["params"]["inner"]
    np.testing.assert_allclose(jax.jit(run)(inner["kernel"], inner["bias"], X), expected, rtol=1e-5)
    assert jax.tree.structure(gathered(variables)) == jax.tree.structure(variables)  # whole ones stay
