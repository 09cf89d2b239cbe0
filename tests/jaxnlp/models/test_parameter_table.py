import jax
import numpy as np
import pytest
from flax.traverse_util import flatten_dict

from jaxnlp.models import Parameter
from jaxnlp.models.parameter_table import block, dense, entries, find, norm, self_attention
from jaxnlp.nn.attention import RelativeBias, RelativeVectors, Rotary
from tests.jaxnlp.nn.block_helpers import make_block


def test_a_bias_has_the_axes_of_its_kernel_but_the_first():
    assert dense(("a",), "D3HK") == {("a", "kernel"): "D3HK", ("a", "bias"): "3HK"}
    assert dense(("a",), "DF", use_bias=False) == {("a", "kernel"): "DF"}
    assert norm(("n",)) == {("n", "scale"): "D", ("n", "bias"): "D"}
    assert norm(("n",), use_bias=False) == {("n", "scale"): "D"}


def test_only_kernels_are_matrices_and_stacked_ones_have_an_axis_in_front():
    table = entries(dense(("a",), "DF"), 0, prefix=("blocks",), stacked=True)
    assert table == {
        ("blocks", "a", "kernel"): Parameter("LDF", 0, matrix=True, scanned=True, dense=True),
        ("blocks", "a", "bias"): Parameter("LF", 0, scanned=True),
    }
    assert entries({("head", "kernel"): "DV"}, head=True) == {
        ("head", "kernel"): Parameter("DV", "above", matrix=True, head=True)
    }


SIZES = {"D": 24, "H": 4, "O": 24, "K": 6, "G": 2, "F": 10, "S": 7, "N": 9}
SELF_ATTENTIONS = [
    {},
    {"num_key_heads": SIZES["G"]},
    {"num_key_heads": SIZES["H"]},
    {"positions": Rotary()},
    {"positions": RelativeBias(SIZES["N"]), "num_key_heads": SIZES["G"]},
    {"positions": RelativeVectors(SIZES["N"] // 2)},
]


@pytest.mark.sweep(1)
@pytest.mark.parametrize("use_bias", [True, False])
@pytest.mark.parametrize("order", ["pre", "post"])
@pytest.mark.parametrize("cross", [False, True])
@pytest.mark.parametrize("settings", SELF_ATTENTIONS, ids=str)
def test_every_parameter_of_a_block_has_an_entry_with_its_axes(settings, cross, order, use_bias):
    grouped, positions = settings.get("num_key_heads") == SIZES["G"], settings.get("positions")
    own = self_attention(grouped=grouped, positions=positions, use_bias=use_bias)
    axes = block(own, cross=cross, use_bias=use_bias)
    size = {"num_heads": SIZES["H"], "feed_forward_width": SIZES["F"]}
    module = make_block(**size, use_bias=use_bias, cross=cross, order=order, **settings)
    x = np.zeros((2, 5, SIZES["D"]), np.float32)
    memory = x if cross else None
    params = jax.eval_shape(
        lambda key: module.init(key, x, deterministic=True, memory=memory)["params"], jax.random.key(0)
    )
    expected = {
        path: tuple(int(letter) if letter.isdigit() else SIZES[letter] for letter in letters)
        for path, letters in axes.items()
    }
    assert {path: leaf.shape for path, leaf in flatten_dict(params).items()} == expected


def test_an_unknown_path_is_named():
    table = entries(dense(("a",), "DF"))
    assert find(table, ["a", "bias"]).axes == "F"
    with pytest.raises(KeyError, match="this model has no parameter a/scale"):
        find(table, ("a", "scale"))
