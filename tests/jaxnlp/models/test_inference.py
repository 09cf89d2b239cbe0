import dataclasses

import jax
import numpy as np
import pytest
from flax.traverse_util import flatten_dict

from jaxnlp.models.inference import inference_params
from jaxnlp.nn.dense import TRANSPOSED
from jaxnlp.ops.devices import compile_for
from tests.jaxnlp.models.gpt_helpers import TOKENS, VARIANTS, apply, make_model, random_params


def names_of(params, kind):
    return {path[:-1] for path in flatten_dict(params) if path[-1] == kind}


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_model_is_the_same_function_and_dense_layers_of_blocks_have_transposed_kernels(variant):
    model = make_model(**VARIANTS[variant])
    params = random_params(model)
    found = inference_params(model.config, params)
    assert {name for _, name, *_ in names_of(found, TRANSPOSED)} == {"attention", "feed_forward"}
    kept = {"head", "down_project", "up_project"} | ({"block_0", "block_1"} if variant == "synthesizer" else set())
    assert {path[0] for path in names_of(found, "kernel")} <= kept
    np.testing.assert_allclose(apply(model, found, TOKENS), apply(model, params, TOKENS), rtol=1e-5, atol=1e-5)
    block = found["block_1"]["feed_forward"]["up"]
    np.testing.assert_array_equal(block[TRANSPOSED], params["blocks"]["feed_forward"]["up"]["kernel"][1].T)


def test_rounded_operands_and_other_devices_keep_their_kernels():
    model = make_model()
    params = random_params(model)
    rounding = dataclasses.replace(model.config.compute, matmul_dtype="bfloat16")
    found = [inference_params(dataclasses.replace(model.config, compute=rounding), params)]
    with compile_for("gpu"):
        found.append(inference_params(model.config, params))
    for separate in found:
        assert not names_of(separate, TRANSPOSED)
        jax.tree.map(np.testing.assert_array_equal, separate["block_1"], jax.tree.map(lambda x: x[1], params["blocks"]))
