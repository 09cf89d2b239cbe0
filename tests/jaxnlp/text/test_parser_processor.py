import dataclasses
import json

import numpy as np
import pytest

from jaxnlp.text.conllu import sentence_of
from jaxnlp.text.parser_processor import ParserProcessor, tags_of
from jaxnlp.text.word_inputs import FIRST_ID, UNKNOWN_ID, WordInputs
from jaxnlp.text.wordpiece import SPECIAL, WordPieceVocabulary

SENTENCES = [
    sentence_of(["The", "dog", "barks"], ["DET", "NOUN", "VERB"], [2, 3, 0], ["det", "nsubj:pass", "root"]),
    sentence_of(["the", "cat"], ["DET", "NOUN"], [2, 0], ["det", "root:x"]),
]


def processor(*, pieces=None, tag_column="upos", subtypes=True):
    inputs = WordInputs.of_sentences([one.words for one in SENTENCES], pieces=pieces, max_length=32)
    return ParserProcessor.of_sentences(
        SENTENCES, inputs, tag_column=tag_column, subtypes=subtypes, system="arc_standard"
    )


def test_tags_and_relations_are_those_of_the_sentences_by_frequency_and_root_is_first():
    found = processor()
    assert found.tags == ("DET", "NOUN", "VERB")
    assert found.relations == ("root", "det", "nsubj:pass")
    assert (found.num_tags, found.num_relations, found.num_transitions) == (FIRST_ID + 3, 3, 8)


def test_relations_may_be_without_subtypes():
    found = processor(subtypes=False)
    assert found.relations == ("root", "det", "nsubj")
    assert [found.relation_id(name) for name in ("root:y", "nsubj", "nsubj:pass", "obj")] == [0, 2, 2, None]
    assert [processor().relation_id(name) for name in ("root:y", "nsubj", "nsubj:pass")] == [0, None, 2]


@pytest.mark.parametrize(
    ("tag_column", "known", "untagged"), [("upos", ("X",), 1), ("xpos", ("Y",), 2), ("both", ("X Y", "X _"), 1)]
)
def test_a_word_without_a_tag_has_the_unknown_tag(tag_column, known, untagged):
    one = dataclasses.replace(sentence_of("abcd", ["X", "X", "X", "_"]), xpos=("Y", "_", "Y", "_"))
    found = ParserProcessor.of_sentences(
        [one], WordInputs.of_sentences([one.words]), tag_column=tag_column, subtypes=True, system="arc_standard"
    )
    assert found.tags == known
    assert found.untagged(one) == untagged
    assert found.encode(one)["tags"].tolist().count(UNKNOWN_ID) == untagged
    assert dataclasses.replace(found, tags=()).untagged(one) == 0


def test_a_batch_has_the_words_and_tags_of_its_rows_and_nothing_at_padding():
    found = processor()
    encoded = [found.encode(sentence) for sentence in SENTENCES]
    batch = found.batch(encoded, 3, 5)
    assert {name: x.shape for name, x in batch.items()} == {
        "words": (3, 5),
        "characters": (3, 5, 20),
        "word_mask": (3, 5),
        "tags": (3, 5),
        "loss_mask": (3,),
    }
    assert batch["words"][0, 0] == batch["words"][1, 0] != batch["words"][0, 1]  # the lower case
    np.testing.assert_array_equal(batch["tags"], [[2, 3, 4, 0, 0], [2, 3, 0, 0, 0], [0] * 5])
    np.testing.assert_array_equal(batch["word_mask"].sum(axis=1), [3, 2, 0])
    np.testing.assert_array_equal(batch["loss_mask"], [True, True, False])
    assert not batch["words"][~batch["word_mask"]].any()


def test_words_and_tokens_of_bert_have_the_length_of_the_batch():
    pieces = WordPieceVocabulary.of_pieces([*SPECIAL, "the", "dog", "cat", "bark", "##s"])
    found = processor(pieces=pieces)
    batch = found.batch([found.encode(SENTENCES[1])], 1, 24)
    assert (
        batch["words"].shape == batch["first_pieces"].shape == batch["pieces"].shape == batch["tags"].shape == (1, 24)
    )
    np.testing.assert_array_equal(batch["first_pieces"][0, :2], [1, 2])


def test_unknown_words_and_tags_have_ids_of_their_own():
    found = processor()
    other = sentence_of(["a", "dog"], ["X", "NOUN"])
    encoded = found.encode(other)
    assert encoded["tags"].tolist() == [UNKNOWN_ID, 3]
    assert encoded["words"][0] == UNKNOWN_ID != encoded["words"][1]
    assert found.unknown_words([other, *SENTENCES]) == 1


def test_tags_are_those_of_the_column_that_is_read():
    one = sentence_of(["a"], ["X"])
    assert [tags_of(one, column) for column in ("upos", "xpos", "both", "none")] == [("X",), ("_",), ("X _",), ()]
    without = processor(tag_column="none")
    assert (without.tags, without.num_tags) == ((), 0)
    assert without.encode(SENTENCES[0])["tags"].tolist() == [0, 0, 0]


@pytest.mark.parametrize("pieces", [None, WordPieceVocabulary.of_pieces([*SPECIAL, "the"])])
def test_reads_back_equal_from_json(pieces):
    found = processor(pieces=pieces, tag_column="both", subtypes=False)
    assert ParserProcessor.from_json(json.loads(json.dumps(found.to_json()))) == found


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"relations": ["det"]}, "the first relation must be root, got det"),
        ({"relations": []}, "the first relation must be root, got none"),
        ({"tags": ["X", "X"]}, "tags must be distinct"),
        ({"system": "other"}, "system must be one of arc_standard, arc_eager, graph, got 'other'"),
        ({"tag_column": "x"}, "tag_column must be one of upos, xpos, both, none, got 'x'"),
        ({"subtypes": 1}, "subtypes is missing or not of type bool"),
        ({"inputs": None}, "inputs is missing or not of type dict"),
    ],
)
def test_other_fields_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        ParserProcessor.from_json(processor().to_json() | changes)
