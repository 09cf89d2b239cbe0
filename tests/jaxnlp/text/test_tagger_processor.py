import dataclasses
import json

import numpy as np
import pytest

from jaxnlp.text.tag_schemes import LabelledSpan, labels_of
from jaxnlp.text.tagger_processor import TaggedSentence, TaggerProcessor, neighbours
from jaxnlp.text.word_inputs import WordInputs

INPUTS = WordInputs.of_sentences([["Ann", "sees", "New", "York"]])
ENTITIES = TaggerProcessor(INPUTS, labels_of(("PER", "LOC"), "bioes"), "bioes")
TAGS = TaggerProcessor(INPUTS, ("NOUN", "VERB"), "none", "characters")
PARTS = TaggerProcessor(
    INPUTS, (), "none", parts=(("upos", ("NOUN", "VERB")), ("feats", ("_", "Number=Sing", "VerbForm=Fin")))
)


def test_batches_have_labels_and_a_mask_of_words():
    sentences = [
        TaggedSentence("1", ("Ann", "sees", "York"), ("S-PER", "O", "S-LOC")),
        TaggedSentence("2", ("Ann",)),
    ]
    batch = ENTITIES.batch([ENTITIES.encode(one) for one in sentences], 3, 4)
    assert batch["labels"].shape == batch["loss_mask"].shape == (3, 4)
    assert [ENTITIES.labels[i] for i in batch["labels"][0, :3]] == ["S-PER", "O", "S-LOC"]
    np.testing.assert_array_equal(batch["loss_mask"].sum(axis=1), [3, 1, 0])
    np.testing.assert_array_equal(batch["word_mask"], batch["loss_mask"])


def test_neighbours_are_the_words_next_to_a_sentence_in_its_file():
    file = [["a", "b"], ["c"], ["d", "e", "f"], ["g"]]
    assert neighbours(file, 2) == [
        ((), ("c", "d")),
        (("a", "b"), ("d", "e")),
        (("b", "c"), ("g",)),
        (("e", "f"), ()),
    ]
    assert neighbours(file, 0) == [((), ())] * 4
    assert neighbours([], 2) == []


def test_the_words_beside_a_part_of_a_sentence_are_its_neighbours():
    whole = TaggedSentence("1", ("a", "b", "c"), ("O", "B-PER", "O"), before=("x",), after=("y",))
    part = whole.part("1.2", slice(1, 2))
    assert (part.name, part.words, part.labels) == ("1.2", ("b",), ("B-PER",))
    assert (part.before, part.after) == (("x", "a"), ("c", "y"))
    assert TaggedSentence("1", ("a", "b")).part("1.1", slice(0, 1)).labels is None


def test_entities_have_types_and_tags_are_types():
    assert (ENTITIES.types, ENTITIES.has_entities) == (("PER", "LOC"), True)
    assert ENTITIES.spans(["B-PER", "E-PER", "O"]) == [LabelledSpan(0, 2, "PER")]
    assert (TAGS.types, TAGS.has_entities) == (("NOUN", "VERB"), False)
    assert TAGS.spans(["VERB", "VERB"]) == [LabelledSpan(0, 1, "VERB"), LabelledSpan(1, 2, "VERB")]
    assert TAGS.allowed.transitions.all()
    assert not ENTITIES.allowed.transitions.all()


def test_several_parts_have_labels_each_and_new_ones_have_no_id():
    labels = (("NOUN", "Number=Sing"), ("VERB", "Mood=Ind"))
    assert PARTS.divide(labels) == {"upos": ["NOUN", "VERB"], "feats": ["Number=Sing", "Mood=Ind"]}
    assert PARTS.join(dict(reversed(PARTS.divide(labels).items()))) == list(labels)
    assert TAGS.join(TAGS.divide(("NOUN", "VERB"))) == ["NOUN", "VERB"]
    sentences = [TaggedSentence("1", ("Ann", "sees"), labels), TaggedSentence("2", ("Ann",))]
    batch = PARTS.batch([PARTS.encode(one) for one in sentences], 3, 4)
    np.testing.assert_array_equal(batch["upos/labels"], [[0, 1, 0, 0], [0] * 4, [0] * 4])
    np.testing.assert_array_equal(batch["feats/labels"], [[1, -1, 0, 0], [0] * 4, [0] * 4])
    assert "labels" not in batch
    assert [(name, one.labels, one.parts) for name, one in PARTS.by_part.items()] == [
        (name, labels, ()) for name, labels in PARTS.parts
    ]
    assert TAGS.by_part == {"": TAGS}


def test_a_file_has_the_scheme_of_its_entities_or_the_one_of_training():
    assert ENTITIES.file_scheme([["B-PER", "I-PER"], ["O"]]) == "bio"
    assert ENTITIES.file_scheme([["B-PER", "M-PER", "E-PER"]]) == "bmes"
    for others in (["O", "O"], ["Ann-Marie", "sees"], ["B-DATE"], ["NOUN"]):
        assert ENTITIES.file_scheme([others]) == "bioes"
    assert TAGS.file_scheme([["B-PER"]]) == "none"
    assert ENTITIES.file_scheme([["U-PER", "O"]]) == "bilou"
    for label, right in (("B_PER", "B-PER"), ("PER-S", "S-PER"), ("PER", "I-PER")):
        with pytest.raises(ValueError, match=f"^{label} looks like the label of an entity; write it as {right}$"):
            ENTITIES.file_scheme([[label, "O", "O"]])


def test_processors_survive_json():
    for processor in (ENTITIES, TAGS, PARTS, dataclasses.replace(ENTITIES, context=3)):
        assert TaggerProcessor.from_json(json.loads(json.dumps(processor.to_json()))) == processor
    with pytest.raises(ValueError, match="scheme is missing or not of type str"):
        TaggerProcessor.from_json(TAGS.to_json() | {"scheme": 3})
    with pytest.raises(ValueError, match="feats: expected a list of strings, got str"):
        TaggerProcessor.from_json(TAGS.to_json() | {"parts": {"feats": "_"}})
    with pytest.raises(ValueError, match=r"parts have labels of words, and no others: .* scheme none, got bio"):
        TaggerProcessor(INPUTS, (), "bio", parts=PARTS.parts)
    with pytest.raises(ValueError, match="labels must be distinct, and at least one, got A, A"):
        TaggerProcessor(INPUTS, (), "none", parts=(("upos", ("A", "A")),))
    with pytest.raises(ValueError, match="unknown scheme or unit: 'xyz' and 'words'"):
        TaggerProcessor(INPUTS, ("A",), "xyz")
    with pytest.raises(ValueError, match="labels must be distinct, and at least one, got none"):
        TaggerProcessor(INPUTS, (), "none")
