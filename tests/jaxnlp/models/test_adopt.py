"""What models around a BERT take from pretrained weights."""

import dataclasses
from pathlib import Path

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxnlp.convert.pretrained_encoder import Pretrained, save_pretrained
from jaxnlp.models.bert import BertConfig
from jaxnlp.models.bert_classifier import BertClassifierConfig
from jaxnlp.models.bert_pretraining import BertPretrainingConfig
from jaxnlp.models.gpt import GPTConfig
from jaxnlp.models.llama import LlamaConfig
from jaxnlp.nn.compute import TransformerCompute
from jaxnlp.runs import load
from jaxnlp.targets import OneClass
from jaxnlp.tasks import Trained
from jaxnlp.tasks.classification import Classification
from jaxnlp.tasks.language_model import LanguageModel
from jaxnlp.tasks.masked_language_model import MaskedLanguageModel
from jaxnlp.text.classifier_processor import TextClassifierProcessor, one_part
from jaxnlp.text.wordpiece import SPECIAL, WordPieceVocabulary
from tests.processors import sized

VOCABULARY = WordPieceVocabulary.of_pieces([*SPECIAL, "good", "bad", "film"])
SHAPE = BertConfig(num_layers=1, num_heads=2, width=8, feed_forward_width=12, max_positions=16, epsilon=1e-6)


def initial(config):
    model = config.build(VOCABULARY)
    return jax.device_get(jax.jit(model.init)(jax.random.key(7), jnp.zeros((1, 1), jnp.int32))["params"])


PRETRAINING = BertPretrainingConfig(encoder=SHAPE)


@pytest.fixture(scope="module")
def params():
    return initial(PRETRAINING)


@pytest.fixture(scope="module")
def weights(params, tmp_path_factory):
    """A folder of pretrained weights, loaded."""
    folder = tmp_path_factory.mktemp("weights") / "tiny-bert"
    save_pretrained(folder, Pretrained(SHAPE, params["encoder"], params["heads"], VOCABULARY))
    return load(folder)


def test_the_shape_is_that_of_a_run_and_dropout_and_compute_are_the_configs_own():
    theirs = GPTConfig(num_layers=1, num_heads=2, width=8, context_length=4, residual_dropout_rate=0.1)
    run = Trained(LanguageModel(), theirs.build(sized(5)), {"positions": 1}, None, name="gpt", folder=Path("runs/gpt"))
    compute = TransformerCompute(scan_layers=True)
    found = GPTConfig(num_heads=2, width=4, residual_dropout_rate=0.7, compute=compute).adopt(run)
    assert found.config == dataclasses.replace(theirs, residual_dropout_rate=0.7, compute=compute)
    assert found.params == run.params
    assert found.notes == ("from gpt: model.num_layers 1, model.width 8, model.context_length 4",)
    with pytest.raises(ValueError, match=r"its model is a GPTConfig, expected LlamaConfig; give a run with"):
        LlamaConfig().adopt(run)


def test_a_width_that_is_equal_only_by_the_default_of_another_width_is_taken():
    theirs = GPTConfig(width=8, feed_forward_width=64)
    run = Trained(LanguageModel(), theirs.build(sized(5)), {"positions": 1}, None, name="gpt", folder=Path("runs/gpt"))
    found = GPTConfig(width=16).adopt(run)  # its default is also 64
    assert found.config == theirs
    assert found.notes == ("from gpt: model.width 8, model.feed_forward_width 64",)


def test_a_gpt_takes_the_shape_of_weights_of_another_library_but_not_their_dropout_and_computation():
    theirs = GPTConfig(num_layers=2, num_heads=2, width=8, context_length=6, epsilon=1e-3, residual_dropout_rate=0.1)
    weights = Trained(LanguageModel(), theirs.build(sized(5)), {"positions": 1}, sized(5), name="tiny-gpt2")
    ours = GPTConfig(residual_dropout_rate=0.3, compute=TransformerCompute(scan_layers=True))
    config, params, processor, notes, _ = ours.adopt(weights)
    assert config == dataclasses.replace(theirs, residual_dropout_rate=0.3, compute=ours.compute)
    assert (params, processor) == (weights.params, weights.processor)
    assert notes == ("decoder from tiny-gpt2: 2 layers, 8 wide, 2 heads",)


@pytest.mark.thorough
def test_the_shape_is_that_of_the_weights_and_dropout_and_compute_are_the_configs_own(weights, params):
    compute = TransformerCompute(remat=True)
    config = BertClassifierConfig(encoder=BertConfig(dropout_rate=0.3), pooling="mean", compute=compute)
    found = config.adopt(weights)
    assert found.config.encoder == dataclasses.replace(SHAPE, dropout_rate=0.3)
    assert (found.config.pooling, found.config.compute) == ("mean", compute)
    assert found.params.keys() == {"encoder"}
    chex.assert_trees_all_equal(dict(found.params["encoder"]), params["encoder"])
    assert found.processor == VOCABULARY


def test_pretraining_takes_the_heads_too_and_says_nothing_is_missing(weights, params):
    found = BertPretrainingConfig().adopt(weights)
    chex.assert_trees_all_equal(dict(found.params), params)
    assert not any("initialised at random" in note for note in found.notes)


def test_a_model_pretrained_here_is_taken_without_an_export(params):
    model = PRETRAINING.build(VOCABULARY)
    run = Trained(MaskedLanguageModel(), model, params, VOCABULARY, name="bert_pretrain")
    found = BertClassifierConfig().adopt(run)
    assert found.config.encoder == SHAPE
    assert found.processor == VOCABULARY
    chex.assert_trees_all_equal(found.params, {"encoder": params["encoder"]})


@pytest.mark.thorough
def test_what_pretraining_lacks_is_named_and_initialised_at_random(params, tmp_path):
    """As a BertForMaskedLM: no pooler, and no head of next sentences."""
    encoder = {name: value for name, value in params["encoder"].items() if name != "pooler"}
    heads = {name: value for name, value in params["heads"].items() if name != "follows"}
    shape = dataclasses.replace(SHAPE, use_pooler=False)
    save_pretrained(tmp_path / "masked", Pretrained(shape, encoder, heads, VOCABULARY))
    found = BertPretrainingConfig().adopt(load(tmp_path / "masked"))
    assert found.config.encoder.use_pooler
    (note,) = [note for note in found.notes if "initialised at random" in note]
    assert "does not have the pooler, the next-sentence head: initialised at random" in note
    chex.assert_trees_all_equal(found.params, {"encoder": encoder, "heads": heads})
    assert jax.tree.map(np.shape, initial(found.config)) == jax.tree.map(np.shape, params)


def test_a_pooler_that_the_encoder_lacks_is_initialised_at_random(params, tmp_path):
    encoder = {name: value for name, value in params["encoder"].items() if name != "pooler"}
    shape = dataclasses.replace(SHAPE, use_pooler=False)
    save_pretrained(tmp_path / "plain", Pretrained(shape, encoder, None, VOCABULARY))
    found = BertClassifierConfig().adopt(load(tmp_path / "plain"))
    assert found.config.encoder == SHAPE
    assert "does not have a pooler: initialised at random" in found.notes[-1]
    assert BertClassifierConfig(pooling="mean").adopt(load(tmp_path / "plain")).config.encoder == shape


def test_embeddings_beyond_the_tokenizer_are_kept(tmp_path):
    padded = dataclasses.replace(SHAPE, padded_vocabulary_size=VOCABULARY.size + 3)
    params = initial(BertPretrainingConfig(encoder=padded))
    save_pretrained(tmp_path / "padded", Pretrained(padded, params["encoder"], None, VOCABULARY))
    found = BertClassifierConfig().adopt(load(tmp_path / "padded"))
    assert found.config.encoder.padded_vocabulary_size == VOCABULARY.size + 3
    assert len(found.params["encoder"]["tokens"]["embedding"]) == VOCABULARY.size + 3
    assert found.processor == VOCABULARY


def test_a_model_without_a_bert_is_refused():
    config = GPTConfig(num_layers=1, num_heads=1, width=4, context_length=4)
    run = Trained(LanguageModel(), config.build(sized(5)), {}, None, name="gpt")
    with pytest.raises(ValueError, match="it does not have a BERT: its model is a GPTConfig"):
        BertClassifierConfig().adopt(run)


@pytest.mark.thorough
def test_classifiers_and_pretraining_begin_with_the_encoders_of_each_other(weights):
    """Heads are of other outputs, so they are not taken, and nothing is said of them."""
    config = BertClassifierConfig(encoder=SHAPE)
    processor = TextClassifierProcessor(VOCABULARY, 16, one_part(OneClass(("bad", "good"))))
    model, inputs = config.build(processor), config.inputs(processor)
    params = jax.jit(model.init)(jax.random.key(5), *(jnp.zeros(x.shape, x.dtype) for x in inputs))["params"]
    classifier = Trained(Classification(), model, jax.device_get(params), processor, name="earlier")
    found = BertClassifierConfig().adopt(weights)
    assert (found.config.encoder, found.processor, found.matching_heads, len(found.notes)) == (
        SHAPE,
        VOCABULARY,
        None,
        1,
    )
    chex.assert_trees_all_equal(found.params, {"encoder": weights.params["encoder"]})
    pretraining = BertPretrainingConfig().adopt(classifier)
    assert any("does not have the masked-token head" in note for note in pretraining.notes)
    chex.assert_trees_all_equal(pretraining.params["encoder"], classifier.params["encoder"])
    again = BertClassifierConfig().adopt(classifier)
    chex.assert_trees_all_equal(again.matching_heads(processor), {"head": classifier.params["head"]})
