import dataclasses

import jax
import numpy as np
import pytest

from jaxnlp.models.bert import BertConfig
from jaxnlp.models.recurrent_parser import RecurrentParserConfig
from jaxnlp.text.wordpiece import SPECIAL, WordPieceVocabulary
from tests.jaxnlp.models.parameter_helpers import assert_described
from tests.jaxnlp.models.parser_helpers import INPUTS, PROCESSOR, batch_of, configurations, processor_of
from tests.random_parameters import random_parameters

CONFIG = RecurrentParserConfig(
    word_width=4, character_width=3, character_features=4, tag_width=3, recurrent_widths=(5,), hidden_width=6
)
PIECES = WordPieceVocabulary.of_pieces([*SPECIAL, "the", "dog", "cat", "##s", "a", "see", "sleep"])
WITH_BERT = dataclasses.replace(
    CONFIG,
    bert=True,
    encoder=BertConfig(num_layers=1, num_heads=2, width=8, max_positions=32),
    character_features=0,
    character_width=30,
)
BERT_PROCESSOR = processor_of(inputs=dataclasses.replace(INPUTS, pieces=PIECES, max_pieces=32))


def parser(config, processor=PROCESSOR):
    model = config.build(processor)
    return model, random_parameters(model, *config.inputs(processor))


def inputs_of(config, batch):
    return [batch[name] for name in config.reads]


@pytest.fixture(scope="module")
def words():
    """A parser's functions of words, compiled once; their results are on the host."""
    model, params = parser(CONFIG)
    logits = jax.jit(lambda nodes, labels, *inputs: model.apply({"params": params}, nodes, labels, *inputs))
    encode = jax.jit(lambda *inputs: model.apply({"params": params}, *inputs, method="encode"))
    return lambda *arrays: jax.device_get(logits(*arrays)), lambda *arrays: jax.device_get(encode(*arrays))


@pytest.mark.parametrize(
    ("config", "processor"),
    [
        (CONFIG, PROCESSOR),
        (dataclasses.replace(CONFIG, recurrent_widths=(), described_by="stack_and_buffer", label_width=2), PROCESSOR),
        (CONFIG, processor_of("none")),
        (WITH_BERT, BERT_PROCESSOR),
    ],
    ids=["words", "no layers", "no tags", "bert"],
)
def test_every_parameter_is_described_and_logits_have_their_shape(config, processor):
    config.check(processor)
    model = config.build(processor)
    shapes = config.inputs(processor)
    out, variables = jax.eval_shape(model.init_with_output, jax.random.key(0), *shapes)
    assert_described(config, variables["params"])
    assert out.shape == (1, 1, processor.num_transitions)


@pytest.mark.thorough
def test_the_sentence_alone_decides_and_all_of_it(words):
    logits, encode = words
    nodes, labels = configurations()
    batch = batch_of(PROCESSOR)
    before, vectors = logits(nodes, labels, *inputs_of(CONFIG, batch)), encode(*inputs_of(CONFIG, batch))
    longer = logits(nodes, labels, *inputs_of(CONFIG, batch_of(PROCESSOR, length=9)))
    np.testing.assert_allclose(longer, before, atol=1e-5)
    for name in ("words", "tags", "characters"):
        changed = batch[name].copy()
        changed[0, 4] = (changed[0, 4] + 1) % 4
        inputs = inputs_of(CONFIG, batch | {name: changed})
        np.testing.assert_allclose(logits(nodes, labels, *inputs)[1], before[1], atol=1e-6)
        other = encode(*inputs)
        assert np.abs(other[0, 2] - vectors[0, 2]).max() > 1e-6  # the first word has read the last one
        np.testing.assert_array_equal(other[0, :2], vectors[0, :2])  # no word and ROOT


def test_only_some_nodes_are_read(words):
    nodes, labels = configurations(1)
    inputs = inputs_of(CONFIG, batch_of(PROCESSOR))
    before = words[0](nodes, labels, *inputs)
    places = [place for place in range(18) if nodes[0, 0, place] < 5]

    def is_read(place):
        changed = nodes.copy()
        changed[0, 0, place] += 1
        return np.abs(words[0](changed, labels, *inputs) - before).max() > 1e-7

    read = [place for place in places if is_read(place)]
    assert read == [place for place in places if place in CONFIG.nodes]
    assert 0 < len(read) < len(places)
    assert (len(CONFIG.nodes), len(dataclasses.replace(CONFIG, described_by="stack_and_buffer").nodes)) == (8, 4)


def test_bert_needs_its_tokenizer():
    with pytest.raises(ValueError, match="give a BERT with --init-from"):
        WITH_BERT.check(PROCESSOR)
