import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxnlp.models import parameter_shapes

traced = []


class Layer(nn.Module):
    width: int

    @nn.compact
    def __call__(self, x, *, deterministic=True):
        traced.append(self.width)
        return nn.Dense(self.width if deterministic else 1)(x)


def test_shapes_and_dtypes_are_those_of_the_initial_parameters():
    x = jnp.zeros((2, 3))
    for width, options in ((4, {}), (5, {"deterministic": True}), (5, {"deterministic": False})):
        initial = Layer(width).init(jax.random.key(1), x, **options)["params"]
        found = parameter_shapes(Layer(width), jax.ShapeDtypeStruct(x.shape, x.dtype), **options)
        assert found == jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), initial)


def test_equal_models_are_traced_once():
    x = jax.ShapeDtypeStruct((2, 3), jnp.float32)
    traced.clear()
    for width in (6, 6, 7):
        parameter_shapes(Layer(width), x)
    assert traced == [6, 7]
