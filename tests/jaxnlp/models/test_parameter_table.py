import pytest

from jaxnlp.models import Parameter
from jaxnlp.models.parameter_table import block, dense, entries, find, norm


def test_a_bias_has_the_axes_of_its_kernel_but_the_first():
    assert dense(("a",), "D3HK") == {("a", "kernel"): "D3HK", ("a", "bias"): "3HK"}
    assert dense(("a",), "DF", use_bias=False) == {("a", "kernel"): "DF"}
    assert norm(("n",)) == {("n", "scale"): "D", ("n", "bias"): "D"}
    assert norm(("n",), use_bias=False) == {("n", "scale"): "D"}


def test_only_kernels_are_matrices_and_stacked_ones_have_an_axis_in_front():
    table = entries(dense(("a",), "DF"), 0, prefix=("blocks",), stacked=True)
    assert table == {
        ("blocks", "a", "kernel"): Parameter("LDF", 0, matrix=True),
        ("blocks", "a", "bias"): Parameter("LF", 0),
    }
    assert entries({("head", "kernel"): "DV"}, head=True) == {
        ("head", "kernel"): Parameter("DV", "above", matrix=True, head=True)
    }


@pytest.mark.parametrize(
    ("mixer", "names"), [("dot", {"qkv", "out"}), ("synthesizer", {"zv", "out"}), ("memory", {"q", "kv", "out"})]
)
def test_a_block_has_the_projections_of_its_mixer(mixer, names):
    axes = block(mixer)
    assert {path[1] for path in axes if path[0] == "attention" and len(path) == 3} == names
    assert (("attention", "kernel") in axes) == (mixer == "synthesizer")
    assert {path[0] for path in axes} == {"attention", "feed_forward", "attention_norm", "feed_forward_norm"}
    assert not any(path[-1] == "bias" for path in block(mixer, use_bias=False))


def test_norms_before_attention_may_have_other_names():
    found = {path[0] for path in block("memory", norms=("query_norm", "memory_norm"))}
    assert found == {"attention", "feed_forward", "query_norm", "memory_norm", "feed_forward_norm"}


def test_an_unknown_path_is_named():
    table = entries(dense(("a",), "DF"))
    assert find(table, ["a", "bias"]).axes == "F"
    with pytest.raises(KeyError, match="this model has no parameter a/scale"):
        find(table, ("a", "scale"))
