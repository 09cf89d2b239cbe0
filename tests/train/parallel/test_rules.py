import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import PartitionSpec as P

from jaxnlp.models import Parameter
from jaxnlp.saving.serialization import ConfigError
from train.parallel.rules import notes, placement, placements, specs_like

BOTH = {"data": 4, "model": 2}


@pytest.mark.parametrize(
    ("axes", "shape", "tensor", "fsdp", "both"),
    [
        (
            "LD3HK",
            (2, 16, 3, 4, 4),
            P(None, None, None, "model", None),
            P(None, "data"),
            P(None, "data", None, "model"),
        ),
        ("LOD", (2, 16, 16), P(None, "model", None), P(None, "data"), P(None, "model", "data")),
        ("DF", (16, 64), P(None, "model"), P(None, "data"), P("data", "model")),
        ("D2GK", (16, 2, 2, 8), P(None, None, "model", None), P("data"), P("data", None, "model")),
        ("VD", (64, 16), P("model", None), P("data"), P("model", "data")),
        ("DD", (16, 16), P(None, None), P("data"), P("data")),
        ("D4K", (12, 4, 16), P(None, None, None), P(None, None, "data"), P(None, None, "data")),
        ("L3HK", (2, 3, 4, 4), P(None, None, "model", None), P(None), P(None, None, "model")),
        ("F", (64,), P("model"), P(None), P("model")),
        ("LD", (8, 16), P(None, None), P(None, None), P(None, None)),
    ],
)
def test_devices_of_model_share_heads_widths_and_vocabularies_and_those_of_data_the_longest_other_axis(
    axes, shape, tensor, fsdp, both
):
    def spec(mesh, **options):
        found = placement("w", Parameter(axes), shape, mesh, **options).spec
        return (*found, *[None] * (len(shape) - len(found)))

    for expected, found in [
        (tensor, spec({"data": 1, "model": 2}, fsdp=False)),
        (fsdp, spec({"data": 4}, fsdp=True)),
        (both, spec(BOTH, fsdp=True)),
        (P(), spec({"data": 4}, fsdp=False)),
    ]:
        assert found == (*expected, *[None] * (len(shape) - len(expected)))


def test_a_width_that_the_devices_do_not_divide_is_refused_with_the_parameter_the_axis_and_a_mesh_that_fits():
    mesh = {"data": 2, "model": 4}
    for heads, remedy in ((6, "--mesh data=4,model=2"), (5, "--parallel fsdp")):
        message = f"4 devices of model do not divide the heads of blocks/qkv, {heads}; give {remedy}, or change the"
        with pytest.raises(ConfigError, match=message):
            placement("blocks/qkv", Parameter("DHK"), (12, heads, 2), mesh, fsdp=False)


def test_parameters_that_stay_whole_are_named_with_the_reason():
    table = {
        ("words",): Parameter("VD"),
        ("map",): Parameter("DD"),
        ("up",): Parameter("DF"),
        ("bias",): Parameter("F"),
    }
    shapes = {"words": (65, 16), "map": (9, 7), "up": (16, 32), "bias": (32,)}
    params = {name: jax.ShapeDtypeStruct(shape, jnp.float32) for name, shape in shapes.items()}
    found = placements(lambda path: table[path], params, BOTH, fsdp=True)
    assert notes(found) == [
        "map is whole along data: 4 devices divide none of its axes, (9, 7)",
        "words is whole along model: 2 devices do not divide its vocabulary, 65",
    ]


def test_moments_and_averages_are_laid_out_as_their_parameters():
    params = {"layer": {"kernel": np.zeros((4, 2)), "bias": np.zeros(2)}}
    specs = {"layer": {"kernel": P("data"), "bias": P()}}
    found = specs_like((optax.adamw(1e-3).init(params), params), params, specs)
    adam, average = found[0][0], found[1]
    assert adam.mu == adam.nu == average == specs
    assert adam.count == P()


def test_an_array_of_the_same_name_and_another_shape_is_whole():
    assert specs_like({"kernel": np.zeros(3)}, {"kernel": np.zeros((4, 2))}, {"kernel": P("data")}) == {"kernel": P()}


def test_of_parameters_of_one_shape_whose_paths_end_alike_each_array_has_its_own():
    shape = np.zeros((4, 4))
    params = {"kernel": shape, "layer": {"kernel": shape}}
    specs = {"kernel": P("data"), "layer": {"kernel": P(None, "data")}}
    assert specs_like((params,), params, specs) == (specs,)
