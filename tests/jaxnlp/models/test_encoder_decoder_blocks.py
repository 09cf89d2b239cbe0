import dataclasses

import jax
import numpy as np
import pytest

from jaxnlp.models.encoder_decoder import EncoderDecoderConfig
from jaxnlp.models.encoder_decoder_blocks import Blocks, attention_positions, parameters_of_blocks
from jaxnlp.nn.attention import RelativeBias, Rotary
from jaxnlp.nn.compute import EXACT
from tests.random_parameters import random_parameters

CONFIG = EncoderDecoderConfig(
    num_layers=3, num_heads=2, width=4, positions="shared_relative_bias", num_buckets=4, max_distance=6
)
X, MEMORY = np.random.default_rng(0).normal(size=(2, 2, 5, 4)).astype(np.float32)


def blocks(side, compute=EXACT, **changes):
    module = Blocks(dataclasses.replace(CONFIG, **changes), cross=side == "decoder")
    read = {"memory": MEMORY} if side == "decoder" else {}
    params = random_parameters(module, X, compute=EXACT, deterministic=True, **read)
    return module, params, lambda params, x: module.apply({"params": params}, x, compute, deterministic=True, **read)


@pytest.mark.parametrize("side", ["encoder", "decoder"])
def test_the_decoder_has_as_many_blocks_as_it_is_given_and_the_table_its_parameters(side):
    _, params, _ = blocks(side, num_decoder_layers=2)
    table = parameters_of_blocks(CONFIG, side)
    found = {tuple(key.key for key in path): leaf.ndim for path, leaf in jax.tree_util.tree_leaves_with_path(params)}
    assert found == {path[1:]: len(parameter.axes) for path, parameter in table.items()}
    assert len(params["blocks"]["attention_norm"]["scale"]) == {"encoder": 3, "decoder": 2}[side]


@pytest.mark.thorough
@pytest.mark.parametrize("side", ["encoder", "decoder"])
def test_a_shared_bias_is_the_same_in_a_loop_and_unrolled_and_acts_in_every_block(side):
    _, params, apply = blocks(side)
    _, _, looped = blocks(side, dataclasses.replace(EXACT, scan_layers=True))
    found = jax.jit(apply)(params, X).hidden
    np.testing.assert_allclose(found, jax.jit(looped)(params, X).hidden, atol=1e-5)
    # The bias of one distance moves outputs as a table of each block would.
    other = params | {"relative_bias": params["relative_bias"] + 3.0 * np.eye(4, dtype=np.float32)[1][:, None]}
    assert np.abs(apply(other, X).hidden - found).max() > 1e-3
    own = {**params, "blocks": {**params["blocks"], "attention": dict(params["blocks"]["attention"])}}
    del own["relative_bias"]
    own["blocks"]["attention"]["relative_bias"] = np.stack([params["relative_bias"]] * 3)
    module = Blocks(dataclasses.replace(CONFIG, positions="relative_bias"), cross=side == "decoder")
    read = {"memory": MEMORY} if side == "decoder" else {}
    expected = module.apply({"params": own}, X, EXACT, deterministic=True, **read).hidden
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_only_layers_with_positions_of_their_own_get_them():
    assert attention_positions(CONFIG) is None
    assert attention_positions(dataclasses.replace(CONFIG, positions="relative_bias")) == RelativeBias(4, 6)
    rotary = EncoderDecoderConfig(positions="rotary")
    assert attention_positions(rotary) == Rotary()
