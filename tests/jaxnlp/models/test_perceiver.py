"""What is a Perceiver's own; what it shares with other decoders is tested in test_decoder."""

import jax
import numpy as np
import pytest

from tests.jaxnlp.models.gpt_helpers import (
    BATCH,
    CONTEXT,
    LATENTS,
    TOKENS,
    VARIANTS,
    WIDTH,
    apply,
    make_model,
    random_params,
    shapes_of,
)

STANDS_AT = {"prefix": (0, 1, 2, 3), "along": (1, 4, 6, 9)}  # the latents' positions


@pytest.mark.sweep(1)
@pytest.mark.parametrize("length", [3, CONTEXT])
@pytest.mark.parametrize("variant", STANDS_AT)
def test_a_latent_changes_the_logits_from_its_position_on(variant, length):
    model = make_model(**VARIANTS[variant])
    params = random_params(model)
    before = np.asarray(apply(model, params, TOKENS[:, :length]))
    for latent, position in enumerate(STANDS_AT[variant]):
        changed = jax.tree.map(np.copy, params)
        changed["down_project"]["latents"][:, latent] += np.linspace(-1.0, 1.0, WIDTH, dtype=np.float32)
        after = np.asarray(apply(model, changed, TOKENS[:, :length]))
        np.testing.assert_array_equal(before[:, :position], after[:, :position])
        assert (np.abs(before - after)[:, position:].max(axis=-1) > 1e-5).all(), latent


def test_a_perceiver_of_two_layers_has_no_blocks_between_and_reads_with_a_cache():
    model = make_model(**(VARIANTS["prefix"] | {"num_layers": 2}))
    params = random_params(model)
    assert "blocks" not in params
    logits, _ = apply(model, model.decoding_params(params), TOKENS, cache=model.empty_cache(BATCH))
    np.testing.assert_allclose(logits, apply(model, params, TOKENS), atol=1e-5)


@pytest.mark.parametrize("variant", STANDS_AT)
def test_the_projections_are_two_of_the_layers_and_there_is_a_vector_for_each_latent(variant):
    model = make_model(**VARIANTS[variant])
    shapes = shapes_of(model)
    assert model.config.num_blocks == model.config.num_layers - 2
    assert shapes["blocks"]["attention"]["out"]["kernel"].shape == (model.config.num_blocks, WIDTH, WIDTH)
    assert shapes["down_project"]["latents"].shape == (1, LATENTS, WIDTH)


def test_latents_are_below_the_blocks_and_the_projection_back_is_above_them():
    config = make_model(**VARIANTS["along"]).config
    assert config.parameter(("down_project", "latents")).depth == "below"
    assert config.parameter(("up_project", "attention", "kv", "kernel")).depth == "above"
    assert config.parameter(("blocks", "attention", "qkv", "kernel")).depth == 0
