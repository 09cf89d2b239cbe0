import dataclasses
import functools

import jax
import numpy as np
import pytest

from jaxnlp.models.bert import BertConfig
from jaxnlp.models.recurrent_parser import RecurrentParserConfig
from jaxnlp.models.tagger import TaggerConfig
from jaxnlp.tasks import Trained
from jaxnlp.tasks.parsing import Parsing
from jaxnlp.tasks.tagging import Tagging
from jaxnlp.text.parser_processor import ParserProcessor
from jaxnlp.text.tagger_processor import TaggerProcessor
from jaxnlp.text.word_inputs import WordInputs
from tests.jaxnlp.models.test_word_encoder import PIECES
from tests.random_parameters import random_parameters

BERT = BertConfig(num_layers=2, num_heads=2, width=8, max_positions=12, use_pooler=False)
FIELDS = {"bert": True, "encoder": BERT, "word_width": 0, "character_features": 0, "recurrent_widths": (3,)}
WORDS = ("the", "cats", "sat")
INPUTS = WordInputs.of_sentences([WORDS], pieces=PIECES, max_pieces=12, max_characters=6)


@pytest.fixture(scope="module")
def tagger():
    processor, config = TaggerProcessor(INPUTS, ("B-X", "I-X", "O"), "bio"), TaggerConfig(crf=False, **FIELDS)
    model, shapes = config.build(processor), config.inputs(processor)
    return Trained(Tagging(), model, random_parameters(model, *shapes), processor, name="mine")


@pytest.mark.thorough
def test_the_weights_are_those_of_the_taggers_own_pass(tagger):
    found = tagger.attend("the cats sat")
    (maps,) = found.maps
    batch = INPUTS.batch([INPUTS.encode(WORDS)], 1, INPUTS.length(WORDS))
    arrays = [batch[name] for name in tagger.model.config.reads]
    apply = jax.jit(functools.partial(tagger.model.apply, mutable=["intermediates"]))
    _, kept = apply({"params": tagger.params}, *arrays)
    (expected,) = jax.tree.leaves(kept["intermediates"]["encoder"]["bert"])
    np.testing.assert_allclose(maps.weights, np.asarray(expected)[:, 0], atol=1e-6)
    assert maps.weights.std() > 0.05
    assert maps.rows == maps.columns == PIECES.tokens(batch["pieces"][0])
    assert (maps.rows[0], maps.rows[-1], found.title, found.truncated) == ("[CLS]", "[SEP]", "the cats sat", False)


def test_a_long_text_ends_after_a_whole_word(tagger):
    found = tagger.attend("the cats sat " * 5, max_length=5)
    whole = tagger.attend("the cats sat " * 5)
    assert found.truncated
    assert whole.truncated
    assert len(found.maps[0].rows) <= 5 < len(whole.maps[0].rows) <= 12
    with pytest.raises(ValueError, match="the text has no words"):
        tagger.attend(" ")


def test_a_parser_attends_as_a_tagger_with_the_same_bert(tagger):
    config = RecurrentParserConfig(**FIELDS)
    processor = ParserProcessor(INPUTS, (), ("root", "nsubj"))
    params = {"encoder": {"bert": tagger.params["encoder"]["bert"]}}
    model, _ = config.build(processor), config.inputs(processor)
    parser = Trained(Parsing(), model, params, processor, name="mine")
    found, expected = (trained.attend("the cats sat").maps[0] for trained in (parser, tagger))
    assert found.rows == expected.rows
    np.testing.assert_array_equal(found.weights, expected.weights)


def test_a_tagger_without_a_bert_says_so(tagger):
    model = dataclasses.replace(tagger.model, config=TaggerConfig(word_width=4))
    with pytest.raises(ValueError, match=r"^mine has no attention to show: its model is a Tagger$"):
        dataclasses.replace(tagger, model=model).attend("the cats")


def test_only_a_model_with_a_bert_shows_attention_among_its_functions(tagger):
    without = dataclasses.replace(tagger, model=dataclasses.replace(tagger.model, config=TaggerConfig(word_width=4)))
    assert repr(tagger).endswith("; tag, attend)")
    assert repr(without).endswith("; tag)")
    assert ("attend" in dir(tagger), "attend" in dir(without)) == (True, False)
    with pytest.raises(AttributeError, match=r"has no 'parse'; it has: tag$"):
        without.parse("the cats")
