import jax
import numpy as np
import pytest

from data.small_grammar import grammar_sentences
from jaxnlp.decoding.parsing import Trees
from jaxnlp.inference.batches import Shape, batches, decoding_shapes
from jaxnlp.runs import load_run
from jaxnlp.tasks.parsing.parser import MANY, STEP_COST, SentenceParser, parse_of
from jaxnlp.text.conllu import sentence_of, tree_problem
from tests.jaxnlp.models.parser_helpers import SENTENCES
from tests.jaxnlp.ops.tree_helpers import by_enumeration
from tests.jaxnlp.tasks.parsing.graph_helpers import CONFIG, NEW, batch, log_softmax, trained_of

EMPTY = Trees(*(np.zeros((64, 16), np.int32) for _ in range(2)), np.zeros(64, np.float32))


@pytest.fixture(scope="module")
def trained(run):
    return load_run(run)


@pytest.fixture(scope="module")
def sentences():
    return [sentence_of(one.words, one.tags, name=str(n)) for n, one in enumerate(grammar_sentences(40, seed=98))]


@pytest.mark.thorough
def test_sentences_of_all_lengths_keep_their_order_and_other_sentences_change_nothing(trained, sentences):
    parse = SentenceParser(trained)
    together = parse(sentences)
    assert [len(tree.heads) for tree in together] == [len(one.words) for one in sentences]
    alone = parse(sentences[7:8]) + parse(sentences[3:4])
    assert alone == [together[7], together[3]]
    assert parse([]) == []


@pytest.mark.thorough
def test_results_have_the_length_that_is_asked_for(trained, sentences):
    processor = trained.processor
    batch = processor.batch([processor.encode(one) for one in sentences[:2]], 2, 32)
    plain, longer = (
        jax.jit(parse_of(trained.model, processor, positions=positions))(trained.params, batch)
        for positions in (None, 40)
    )
    assert (plain.heads.shape, longer.heads.shape) == ((2, 32), (2, 40))
    np.testing.assert_array_equal(longer.heads[:, :32], plain.heads)
    assert not np.asarray(longer.relations[:, 32:]).any()


def test_one_long_sentence_takes_one_row_and_many_short_ones_share_batches():
    shapes = (*decoding_shapes(512), MANY)
    assert [*batches([40], shapes, STEP_COST)] == [([0], Shape(1, 128))]
    assert [shape for _, shape in batches([12] * 512, shapes, STEP_COST)] == [MANY] * 2


def test_many_short_sentences_of_a_graph_parser_are_padded_to_16_words(monkeypatch):
    shapes = []
    parse = SentenceParser(trained_of())
    monkeypatch.setattr(parse, "_parse", lambda params, batch: shapes.append(batch["words"].shape) or EMPTY)
    parse([NEW] * 512)
    assert shapes == [(64, 16)] * 8


def test_a_sentence_that_is_too_long_is_named(trained):
    long = sentence_of(["a"] * 33, ["DET"] * 33, name="s7")
    with pytest.raises(ValueError, match="sentence s7: a sentence of 33 words exceeds the maximum of 32 words"):
        SentenceParser(trained)([long])


def test_a_sentence_without_words_is_named_and_not_called_long(trained):
    with pytest.raises(ValueError, match=r"sentence s8: a sentence needs at least one word, got none$"):
        SentenceParser(trained)([sentence_of([], name="s8")])


@pytest.mark.thorough
def test_a_graph_parser_takes_the_best_tree_and_the_best_relation_of_each_arc():
    trained, arrays = trained_of(), batch()
    trees = jax.device_get(jax.jit(parse_of(trained.model, trained.processor))(trained.params, arrays))
    inputs = [arrays[name] for name in CONFIG.reads]
    scores = jax.device_get(jax.jit(trained.model.apply)({"params": trained.params}, trees.heads, *inputs))
    for row, one in enumerate((*SENTENCES, NEW)):
        n = len(one.words)
        heads = trees.heads[row, :n].tolist()
        assert heads == list(by_enumeration(scores.arcs[row].astype(np.float64), n, projective=False)[0])
        assert trees.relations[row, :n].tolist() == scores.relations[row, :n].argmax(axis=1).tolist()
        assert [relation == 0 for relation in trees.relations[row, :n]] == [head == 0 for head in heads]
        total = 0.0
        for word, head in enumerate(heads):
            others = [h for h in range(n + 1) if h != word + 1]
            total += log_softmax(scores.arcs[row, word, others])[others.index(head)]
            total += log_softmax(scores.relations[row, word]).max()
        np.testing.assert_allclose(trees.scores[row], total, rtol=1e-4)
        assert not trees.heads[row, n:].any()
        assert not trees.relations[row, n:].any()
    assert trees.scores[3] == 0.0


def test_a_graph_parser_parses_texts_into_trees_and_refuses_beams():
    run = trained_of()
    found = run.parse(["the dog sees a cat", "cats sleep", ""])
    assert [len(one.heads) for one in found] == [5, 2, 0]
    for one in found[:2]:
        assert tree_problem(one.heads) is None
        assert [relation == "root" for relation in one.relations] == [head == 0 for head in one.heads]
    with pytest.raises(ValueError, match="num_beams is for parsers by transitions; a graph parser needs 1, got 4"):
        run.parse("cats sleep", num_beams=4)
