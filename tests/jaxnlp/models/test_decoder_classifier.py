"""Classifiers with a decoder: the vector of a text is that of its last token."""

from types import SimpleNamespace

import jax
import numpy as np
import pytest
from flax.traverse_util import flatten_dict

from jaxnlp.models import parameter_shapes
from jaxnlp.models.classifier import ClassifierConfig
from jaxnlp.models.decoder_classifier import DECODER, GPTClassifierConfig, LlamaClassifierConfig, classifier_of
from jaxnlp.models.gpt import GPTConfig
from jaxnlp.models.llama import LlamaConfig
from jaxnlp.nn.compute import EXACT
from jaxnlp.text.byte_pairs import BytePairs
from tests.random_parameters import random_parameters

SIZES = {"num_layers": 2, "num_heads": 2, "width": 8, "context_length": 12, "compute": EXACT}
PROCESSOR = SimpleNamespace(vocabulary=SimpleNamespace(size=9), outputs=3, apart=True, by_part={"": None})
TOKENS = np.array([[3, 4, 5, 6, 7], [1, 2, 8, 0, 0]])
MASK = np.array([[True] * 5, [True] * 3 + [False] * 2])


@pytest.fixture(scope="module")
def model():
    """A classifier whose padding has the id 8, and its parameters."""
    made = GPTClassifierConfig(**SIZES, padding_id=8).build(PROCESSOR)
    return made, random_parameters(made, TOKENS, MASK)


@pytest.mark.thorough
def test_padding_and_its_token_at_the_end_change_no_logits(model):
    made, params = model
    apply = jax.jit(made.apply)
    expected = [
        apply({"params": params}, *(x[row : row + 1, :size] for x in (TOKENS, MASK))) for row, size in ((0, 5), (1, 2))
    ]
    np.testing.assert_allclose(apply({"params": params}, TOKENS, MASK), np.concatenate(expected), atol=1e-6)


def test_the_head_reads_the_vector_of_the_last_token(model):
    made, params = model
    hidden = made.decoder.apply({"params": params[DECODER]}, TOKENS, return_hidden=True)
    last = np.stack([hidden[0, 4], hidden[1, 1]])
    np.testing.assert_allclose(
        made.apply({"params": params}, TOKENS, MASK), last @ params["head"]["kernel"], rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize("kind", [GPTClassifierConfig, LlamaClassifierConfig])
def test_each_parameter_is_in_the_table_with_its_axes(kind):
    config = kind(**SIZES)
    shapes = parameter_shapes(config.build(PROCESSOR), *config.inputs(PROCESSOR))
    for path, x in flatten_dict(shapes).items():
        assert len(config.parameter(path).axes) == x.ndim, path
    assert config.parameter(("head", "kernel")).head
    assert "head" not in shapes[DECODER]


@pytest.mark.parametrize("kind", [GPTConfig, LlamaConfig])
def test_the_shape_is_that_of_the_language_model_and_dropout_rates_are_those_of_the_config(kind):
    theirs = kind(**SIZES, residual_dropout_rate=0.5, **({"logit_cap": 15.0} if kind is LlamaConfig else {}))
    vocabulary = BytePairs.of(["a text"], 260)
    params = {"tokens": 1, "head": 2}
    trained = SimpleNamespace(model=SimpleNamespace(config=theirs), params=params, processor=vocabulary, name="x")
    adopted = GPTClassifierConfig(residual_dropout_rate=0.2).adopt(trained)
    assert adopted.config.decoder == kind(
        **SIZES | {"compute": adopted.config.compute}, tie_embeddings=True, residual_dropout_rate=0.2
    )
    assert adopted.config == classifier_of(adopted.config.decoder, padding_id=None)
    assert adopted.params == {DECODER: {"tokens": 1}}
    assert (
        adopted.processor.tokenize(["a text"], max_length=9).tokens[0].tolist() == vocabulary.encode("a text").tolist()
    )


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match=r"tie_embeddings must be True for a classifier"):
        GPTClassifierConfig(tie_embeddings=False)
    with pytest.raises(ValueError, match=r"logit_cap must be None for a classifier, got 15\.0"):
        LlamaClassifierConfig(logit_cap=15.0)
    with pytest.raises(ValueError, match=r"set data\.pairs to together"):
        GPTClassifierConfig().check(PROCESSOR)
    other = SimpleNamespace(model=SimpleNamespace(config=ClassifierConfig()), processor=None, params={}, name="x")
    with pytest.raises(ValueError, match=r"its model is a ClassifierConfig, expected a GPT-2, Llama, Mistral or Qwen"):
        GPTClassifierConfig().adopt(other)
