import jax.numpy as jnp
import pytest

from jaxnlp.checkpoints import RunError
from train.begin import begin, merge, params_digest


def test_a_config_without_a_beginning_is_given_nothing(tiny_config):
    begun = begin(tiny_config())
    assert (begun.params, begun.processor, begun.digest, begun.notes) == ({}, None, None, ())


def test_given_parameters_replace_those_at_their_places():
    merged = merge({"a": {"x": jnp.zeros(2), "y": jnp.zeros(3)}}, {"a": {"y": jnp.ones(3)}})
    assert (merged["a"]["x"].sum(), merged["a"]["y"].sum()) == (0.0, 3.0)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"a": {"z": jnp.ones(2)}}, "the model has no parameter a/z"),
        ({"a": {"x": jnp.ones(3)}}, r"a/x has the shape \(2,\), and \(3,\) is given"),
    ],
)
def test_given_parameters_of_unknown_names_or_other_shapes_are_refused(given, message):
    with pytest.raises(RunError, match=message):
        merge({"a": {"x": jnp.zeros(2)}}, given)


def test_the_digest_changes_with_names_shapes_and_values():
    trees = [
        {"a": jnp.zeros(4)},
        {"b": jnp.zeros(4)},
        {"a": jnp.zeros((2, 2))},
        {"a": jnp.ones(4)},
    ]
    assert len({params_digest(tree) for tree in trees}) == len(trees)
    assert params_digest(trees[0]) == params_digest({"a": jnp.zeros(4)})


def test_a_place_with_nothing_to_begin_with_is_refused_by_its_name(tiny_config, tmp_path):
    with pytest.raises(RunError, match=r"--init-from .*absent"):
        begin(tiny_config(init_from=str(tmp_path / "absent")))
