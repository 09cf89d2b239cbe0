"""What is a Synthesizer's own; what it shares with other decoders is tested in test_decoder."""

import jax
import numpy as np

from tests.jaxnlp.models.gpt_helpers import CONTEXT, TOKENS, VARIANTS, VOCABULARY, make_model, random_params


def test_the_first_layers_weights_of_a_position_depend_on_its_own_token_only():
    """Dot products would depend on the keys too."""
    model = make_model(**VARIANTS["synthesizer"])
    params, weights = random_params(model), jax.jit(lambda p, tokens: model.attention_maps(p, tokens)["blocks"][0])
    before = np.asarray(weights(params, TOKENS))
    for position in (0, CONTEXT // 2):
        changed = TOKENS.copy()
        changed[:, position] = (changed[:, position] + 1) % VOCABULARY
        after = np.asarray(weights(params, changed))
        others = np.arange(CONTEXT) != position
        np.testing.assert_array_equal(before[:, :, others], after[:, :, others])
    assert np.abs(before[:, :, position] - after[:, :, position]).max() > 1e-4


def test_a_config_describes_its_scores_by_the_context():
    config = make_model(**VARIANTS["synthesizer"]).config
    assert config.parameter(("blocks", "attention", "kernel")).axes == "LKS"
    assert config.parameter(("blocks", "attention", "zv", "kernel")).axes == "LD2HK"
