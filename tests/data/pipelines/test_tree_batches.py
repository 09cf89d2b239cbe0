import dataclasses

import numpy as np
import pytest

from data.pipelines.buckets import rows_of
from data.pipelines.tree_batches import derived, tree_batch, tree_buckets, tree_split
from data.small_grammar import grammar_sentences
from jaxnlp.text.conllu import sentence_of
from jaxnlp.text.parser_processor import ParserProcessor
from jaxnlp.text.transitions import kinds_of_transitions
from jaxnlp.text.word_inputs import WordInputs
from tests.data.pipelines.transitions import rebuilt

SENTENCES = [
    sentence_of(one.words, one.tags, one.heads, one.relations, name=str(number))
    for number, one in enumerate(grammar_sentences(40, seed=5))
]
LENGTHS, SIZE = (8, 16, 32), rows_of(64)


def processor(system="arc_standard"):
    inputs = WordInputs.of_sentences([one.words for one in SENTENCES])
    return ParserProcessor.of_sentences(SENTENCES, inputs, tag_column="upos", subtypes=True, system=system)


@pytest.mark.parametrize("system", ["arc_standard", "arc_eager"])
def test_batches_rebuild_the_trees_of_their_sentences(system):
    reader = processor(system)
    trees = [derived(sentence, reader) for sentence in SENTENCES]
    split = tree_split(SENTENCES, trees, tree_buckets(LENGTHS, reader), SIZE)
    kinds = kinds_of_transitions(reader.num_relations)
    rows = [(batch, row) for batch in split.batches for row in np.flatnonzero(batch["loss_mask"].any(axis=1))]
    assert sorted(split.rows.tolist()) == list(range(40))
    for (batch, row), number in zip(rows, split.rows, strict=True):
        sentence, chosen = SENTENCES[number], batch["transitions"][row][batch["loss_mask"][row]]
        assert rebuilt(chosen, len(sentence.words), system, reader.num_relations) == list(sentence.heads)
        found = [reader.relations[relation] for relation in batch["relations"][row, 1 : len(sentence.words) + 1]]
        assert found == list(sentence.relations)
        legal = batch["legal"][row][batch["loss_mask"][row]]
        assert all(allowed[kinds[transition]] for allowed, transition in zip(legal, chosen, strict=True))


def test_shapes_are_few_and_batches_hold_about_the_same_number_of_words():
    reader = processor()
    trees = [derived(sentence, reader) for sentence in SENTENCES]
    batches = tree_buckets(LENGTHS, reader).epochs_of_same(trees, SIZE, seed=0)
    iterator = iter(batches)
    shapes = {next(iterator)["words"].shape for _ in range(40)}
    assert shapes <= {(8, 8), (4, 16), (2, 32)}
    assert len(shapes) > 1


def test_an_epoch_has_each_sentence_once_and_continues_from_a_saved_state():
    reader = processor()
    trees = [derived(sentence, reader) for sentence in SENTENCES]
    iterator = iter(tree_buckets(LENGTHS, reader).epochs_of_same(trees, SIZE, seed=0))
    words = 0
    while words < sum(len(one.words) for one in SENTENCES):
        words += int(next(iterator)["word_mask"].sum())
    assert words == sum(len(one.words) for one in SENTENCES)
    state = iterator.get_state()
    expected = [next(iterator)["words"] for _ in range(3)]
    iterator.set_state(state)
    for batch in expected:
        np.testing.assert_array_equal(next(iterator)["words"], batch)


def test_padding_has_no_loss_and_a_legal_transition():
    reader = processor()
    batch = tree_batch(reader, [derived(SENTENCES[0], reader)], 3, 24)
    n = len(SENTENCES[0].words)
    assert batch["loss_mask"].sum(axis=1).tolist() == [2 * n, 0, 0]
    assert batch["legal"].any(axis=-1).all()
    assert (batch["nodes"][1:] == -1).all()
    assert {name: x.shape for name, x in batch.items() if name not in ("words", "characters", "tags", "word_mask")} == {
        "nodes": (3, 48, 18),
        "relations": (3, 25),
        "legal": (3, 48, 5),
        "transitions": (3, 48),
        "loss_mask": (3, 48),
    }


def test_a_graph_parser_gets_heads_and_relations_of_all_trees_and_nothing_at_padding():
    reader = processor("graph")
    crossed = sentence_of(["a", "b", "c", "d"], ["DET"] * 4, [3, 4, 0, 3], ["det", "new", "root", "obj"])
    batch = tree_batch(reader, [derived(one, reader) for one in (crossed, SENTENCES[0])], 3, 24)
    for row, one in enumerate((crossed, SENTENCES[0])):
        n = len(one.words)
        assert batch["heads"][row].tolist() == [*one.heads, *[0] * (24 - n)]
        ids = [-1 if relation == "new" else reader.relations.index(relation) for relation in one.relations]
        assert batch["relations"][row].tolist() == [*ids, *[0] * (24 - n)]
    np.testing.assert_array_equal(batch["loss_mask"], batch["word_mask"])
    assert not batch["loss_mask"][2].any()
    assert batch.keys() == {"words", "characters", "tags", "word_mask", "heads", "relations", "loss_mask"}


def test_a_relation_that_training_does_not_have_has_no_loss():
    reader = processor()
    one = sentence_of(["the", "dog"], ["DET", "NOUN"], [2, 0], ["det:new", "root"])
    batch = tree_batch(reader, [derived(one, reader)], 1, 2)
    # SHIFT SHIFT LEFT-ARC RIGHT-ARC: the third one adds the arc.
    assert batch["loss_mask"].tolist() == [[True, True, False, True]]


def test_a_tree_that_is_not_projective_has_the_transitions_of_the_lifted_tree():
    reader = processor()
    crossed = sentence_of(["a", "b", "c", "d"], ["DET"] * 4, [3, 4, 0, 3], ["det", "det", "root", "obj"])
    found = derived(crossed, reader)
    assert rebuilt(found.derivation.transitions, 4, "arc_standard", reader.num_relations) == [3, 3, 0, 3]


def test_a_sentence_that_is_too_long_is_refused_before_its_tree_is_lifted(monkeypatch):
    monkeypatch.setattr("data.pipelines.tree_batches.lifted", lambda heads: pytest.fail("lifted"))
    reader = processor()
    reader = dataclasses.replace(reader, inputs=dataclasses.replace(reader.inputs, max_length=3))
    crossed = sentence_of(["a", "b", "c", "d"], ["DET"] * 4, [3, 4, 0, 3], ["det", "det", "root", "obj"])
    with pytest.raises(ValueError, match="a sentence of 4 words exceeds the maximum of 3 words"):
        derived(crossed, reader)


def test_sentences_without_trees_are_not_scored_and_have_a_row_each():
    reader = processor()
    plain = [sentence_of(["a", "dog"], ["DET", "NOUN"]), SENTENCES[0]]
    split = tree_split(plain, [derived(sentence, reader) for sentence in plain], tree_buckets(LENGTHS, reader), SIZE)
    assert not split.scored
    assert sum(int(batch["loss_mask"].any(axis=1).sum()) for batch in split.batches) == 2
