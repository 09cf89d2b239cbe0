"""Options of the computation that help hides (`ModelConfig.ignores`) have no effect on these models."""

import dataclasses

import jax
import numpy as np
import pytest

from jaxnlp.models import (
    AttentionLSTMConfig,
    BertConfig,
    BertPretrainingConfig,
    EncoderDecoderConfig,
    GPTConfig,
    PerceiverConfig,
    RecurrentLMConfig,
    SynthesizerConfig,
    TextCNNConfig,
    TextRNNConfig,
)
from jaxnlp.nn.compute import Compute
from tests.jaxnlp.models.word_classifier_helpers import MASK, PROCESSOR, TOKENS

CHANGED = {"attention": "cudnn", "recurrence": "cudnn", "scan_layers": True, "remat": True}
DECODER = {"num_layers": 2, "num_heads": 2, "width": 4, "context_length": 8}
INPUTS = {EncoderDecoderConfig: (TOKENS, TOKENS), AttentionLSTMConfig: (TOKENS, TOKENS)}
MODELS = (
    GPTConfig(**DECODER),
    SynthesizerConfig(**DECODER),
    PerceiverConfig(**{**DECODER, "num_layers": 3}, num_latents=2),
    RecurrentLMConfig(embedding_width=4, widths=(4, 4)),
    EncoderDecoderConfig(num_layers=2, num_heads=2, width=4, context_length=8),
    AttentionLSTMConfig(embedding_width=4, width=4),
    BertPretrainingConfig(encoder=BertConfig(num_layers=2, num_heads=2, width=4, max_positions=8)),
    TextCNNConfig(embedding_width=4, feature_maps=2),
    TextRNNConfig(embedding_width=4, widths=(4,)),
)


def program(config):
    """The gradient's program of a model in training; UnavailableError for an implementation that it uses."""
    classifier = isinstance(config, TextCNNConfig | TextRNNConfig)
    model = config.build_classifier(PROCESSOR) if classifier else config.build(PROCESSOR.vocabulary_size)
    inputs = (TOKENS, MASK) if classifier else INPUTS.get(type(config), (TOKENS,))
    params = jax.eval_shape(model.init, jax.random.key(0), *inputs)

    def loss(params):
        return sum(x.astype("float32").sum() for x in jax.tree.leaves(model.apply(params, *inputs)))

    return str(jax.make_jaxpr(jax.grad(loss))(params))


@pytest.mark.sweep(1)
@pytest.mark.parametrize("config", MODELS, ids=lambda config: type(config).__name__)
def test_hidden_options_do_not_change_the_program(config):
    assert config.ignores
    names = [name.removeprefix("compute.") for name in config.ignores]
    changed = Compute(**{name: CHANGED[name] for name in names})
    assert program(dataclasses.replace(config, compute=changed)) == program(config)


def test_an_option_that_a_model_reads_changes_it():
    config = GPTConfig(**DECODER)
    assert program(dataclasses.replace(config, compute=Compute(remat=True))) != program(config)
    assert np.all(np.isin(config.ignores, ["compute.recurrence"]))
