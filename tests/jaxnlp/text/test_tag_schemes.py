import numpy as np
import pytest

from jaxnlp.text.tag_schemes import (
    LabelledSpan,
    allowed_labels,
    check_label,
    convert,
    find_scheme,
    illegal_positions,
    labels_of,
    labels_of_spans,
    misspelt_entities,
    spans_of,
)

SPANS = [LabelledSpan(0, 1, "PER"), LabelledSpan(1, 3, "PER"), LabelledSpan(4, 7, "LOC"), LabelledSpan(7, 8, "ORG")]
WRITTEN = {
    "bio": "B-PER B-PER I-PER O B-LOC I-LOC I-LOC B-ORG O",
    "iob1": "I-PER B-PER I-PER O I-LOC I-LOC I-LOC I-ORG O",
    "bioes": "S-PER B-PER E-PER O B-LOC I-LOC E-LOC S-ORG O",
    "bmes": "S-PER B-PER E-PER O B-LOC M-LOC E-LOC S-ORG O",
    "bilou": "U-PER B-PER L-PER O B-LOC I-LOC L-LOC U-ORG O",
    "bmewo": "W-PER B-PER E-PER O B-LOC M-LOC E-LOC W-ORG O",
    "ioe2": "E-PER I-PER E-PER O I-LOC I-LOC E-LOC E-ORG O",
    "ioe1": "E-PER I-PER I-PER O I-LOC I-LOC I-LOC I-ORG O",
}


@pytest.mark.parametrize("scheme", WRITTEN)
def test_every_scheme_writes_and_reads_the_same_entities(scheme):
    labels = WRITTEN[scheme].split()
    assert labels_of_spans(SPANS, 9, scheme) == labels
    assert spans_of(labels) == SPANS
    assert illegal_positions(labels, scheme) == []
    assert find_scheme([labels]) == scheme
    for other, text in WRITTEN.items():
        assert convert(labels, other) == text.split()


def test_the_scheme_io_joins_neighbours_of_a_type():
    labels = ["I-PER", "I-PER", "I-LOC", "O"]
    assert spans_of(labels) == [LabelledSpan(0, 2, "PER"), LabelledSpan(2, 3, "LOC")]
    assert convert(["B-PER", "B-PER", "B-LOC", "O"], "io") == labels
    assert illegal_positions(labels, "io") == []
    assert find_scheme([labels]) == "iob1"  # the same entities, and predictions keep neighbours apart


@pytest.mark.parametrize("scheme", ["bio", "iob1", "bioes", "bmes", "bilou", "bmewo", "ioe2", "ioe1"])
def test_allowed_labels_are_those_of_sequences_that_can_be_read_back(scheme):
    labels = labels_of(("A", "B"), scheme)
    allowed = allowed_labels(labels, scheme)
    generator = np.random.default_rng(0)
    legal = 0
    for _ in range(400):
        ids = generator.integers(0, len(labels), 3)
        names = [labels[i] for i in ids]
        fits = allowed.start[ids[0]] and allowed.end[ids[-1]] and allowed.transitions[ids[:-1], ids[1:]].all()
        assert fits == (convert(names, scheme) == names) == (illegal_positions(names, scheme) == [])
        legal += bool(fits)
    assert 0 < legal < 400


def test_illegal_labels_are_read_as_conll_counts_them():
    assert spans_of(["I-PER", "I-LOC", "O", "E-LOC", "I-LOC"]) == [
        LabelledSpan(0, 1, "PER"),
        LabelledSpan(1, 2, "LOC"),
        LabelledSpan(3, 4, "LOC"),
        LabelledSpan(4, 5, "LOC"),
    ]
    assert illegal_positions(["I-PER", "B-PER", "I-LOC"], "bio") == [0, 2]
    assert illegal_positions(["B-PER", "O", "B-PER"], "bioes") == [1, 3]
    assert illegal_positions(["B-PER"], "iob1") == [0]


def test_labels_of_words_are_no_entities():
    assert find_scheme([["NOUN", "VERB"]]) == "none"
    assert find_scheme([["B-PER", "NOUN", "VERB"]]) == "none"
    assert find_scheme([["B-PER", "E-PER", "Q-PER"]]) == "bioes"
    assert find_scheme([["-x", "BI-x", "ME-x"]]) == "none"
    assert labels_of(("NOUN", "VERB"), "none") == ("NOUN", "VERB")
    assert convert(["NOUN"], "none") == ["NOUN"]
    assert find_scheme([["O", "O"]]) == "bio"


@pytest.mark.parametrize(
    ("labels", "first", "right"),
    [
        ("B_PER I_PER O B_LOC", "B_PER", "B-PER"),
        ("O PER-U O ORG-U", "PER-U", "U-PER"),
        ("PER_B PER_E O", "PER_B", "B-PER"),
        ("b-per i-per o o", "b-per", "B-per"),
        ("B M E S S", "B", "B-ENTITY"),
        ("O I O", "I", "I-ENTITY"),
        ("(PER* *) * (LOC)", "(PER*", "B-PER"),
        ("O O O PERSON PERSON", "PERSON", "I-PERSON"),
    ],
)
def test_entities_in_other_spellings_are_named_with_the_right_one(labels, first, right):
    assert find_scheme([labels.split()]) == "none"
    assert misspelt_entities([labels.split()]) == (first, right)


@pytest.mark.parametrize("labels", ["DET NOUN VERB", "N V O D S", "NN NNS VBZ -LRB- O", "O O"])
def test_labels_of_words_are_no_misspelt_entities(labels):
    assert misspelt_entities([labels.split()]) is None


@pytest.mark.parametrize("wrong", ["E-PER", "M-PER", "S-LOC"])
def test_one_wrong_label_does_not_change_the_scheme_that_is_found(wrong):
    assert find_scheme([WRITTEN["bio"].split()] * 3 + [["O", wrong, "O"]]) == "bio"
    assert find_scheme([["B-PER", "O"], ["O", "B-LOC"], ["B-PER", wrong, "O"]]) == "bio"


@pytest.mark.parametrize(
    ("label", "scheme", "message"),
    [
        ("M-PER", "bio", "the label 'M-PER' does not belong to the scheme bio: expected O, B-TYPE, I-TYPE"),
        ("B-", "bmes", "the label 'B-' does not belong to the scheme bmes: expected O, B-TYPE, M-TYPE, E-TYPE, S-TYPE"),
        ("", "none", "the label '' does not belong to the scheme none: expected a label"),
    ],
)
def test_labels_outside_the_scheme_are_refused(label, scheme, message):
    check_label("O", scheme)
    with pytest.raises(ValueError) as error:  # noqa: PT011
        check_label(label, scheme)
    assert str(error.value) == message


def test_entities_that_share_a_word_or_leave_the_sentence_are_refused():
    with pytest.raises(ValueError, match="two entities overlap in the words 1 to 2"):
        labels_of_spans([LabelledSpan(0, 2, "A"), LabelledSpan(1, 3, "B")], 4, "bio")
    with pytest.raises(ValueError, match="words 1 to 4 does not fit a sentence of 3 words"):
        labels_of_spans([LabelledSpan(1, 5, "A")], 3, "bio")
    with pytest.raises(ValueError, match="none has no entities"):
        labels_of_spans([], 3, "none")
