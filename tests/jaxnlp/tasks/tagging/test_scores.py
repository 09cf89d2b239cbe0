import numpy as np
import pytest

from jaxnlp.tasks.tagging.scores import (
    TypeScores,
    bracketed,
    count,
    kinds,
    micro_counts,
    scores,
    sections,
    strict_spans,
)
from jaxnlp.text.tag_schemes import LabelledSpan, labels_of, spans_of
from jaxnlp.text.tagger_processor import TaggedSentence, TaggerProcessor
from jaxnlp.text.word_inputs import WordInputs

INPUTS = WordInputs.of_sentences([["a"]])
BIO = TaggerProcessor(INPUTS, labels_of(("PER", "LOC"), "bio"), "bio")
BIOES = TaggerProcessor(INPUTS, labels_of(("PER", "LOC"), "bioes"), "bioes")
TAGS = TaggerProcessor(INPUTS, ("NOUN", "VERB"), "none")
GOLD = [["B-PER", "I-PER", "O", "B-LOC"], ["O", "B-LOC"], ["B-PER", "O"]]
PREDICTED = [["B-PER", "I-PER", "O", "B-PER"], ["O", "B-LOC"], ["O", "I-PER"]]


def test_scores_are_those_counted_by_hand():
    found = scores(BIO, GOLD, PREDICTED)
    # 2 of 4 predicted entities are right, and 2 of 4 in the data are found; 5 of 8 labels are right.
    expected = {"precision": 0.5, "recall": 0.5, "f1": 0.5, "accuracy": 5 / 8}
    assert {name: found[name].value for name in expected} == pytest.approx(expected)
    assert (found["f1"].count, found["accuracy"].count) == (4, 8)
    # PER: 1 right, 3 predicted, 2 in the data; LOC: 1 right, 1 predicted, 2 in the data.
    assert found["PER/f1"].value == pytest.approx(2 / 5)
    assert found["LOC/f1"].value == pytest.approx(2 / 3)
    assert found["strict_f1"].value == pytest.approx(4 / 7)  # the illegal I-PER is not an entity
    assert set(found) == set(kinds(BIO))
    tags = scores(TAGS, [["NOUN", "VERB", "NOUN"]], [["NOUN", "NOUN", "NOUN"]])
    assert set(tags) == set(kinds(TAGS)) == {"accuracy", "NOUN/f1", "VERB/f1"}
    assert (tags["accuracy"].value, tags["NOUN/f1"].value) == pytest.approx((2 / 3, 0.8))


def test_scores_without_any_entity_are_0():
    found = scores(BIO, [["O"]], [["O"]])
    assert (found["f1"].value, found["strict_f1"].value, found["accuracy"].value) == (0.0, 0.0, 1.0)
    assert micro_counts({}) == TypeScores(0, 0, 0)


def random_labels(processor):
    """Labels of 200 sentences, many of them illegal, and predictions of which six in ten are right."""
    generator = np.random.default_rng(0)

    def draw(length):
        return [processor.labels[i] for i in (generator.random(length) * len(processor.labels)).astype(int)]

    gold = [draw(1 + number % 7) for number in range(200)]
    predicted = [
        [b if generator.random() < 0.4 else a for a, b in zip(row, draw(len(row)), strict=True)] for row in gold
    ]
    return gold, predicted


# What seqeval 1.2.2 gives for `random_labels`: F1 in the default mode, in the strict mode, and of PER.
SEQEVAL = {
    "bio": (0.649090909090909, 0.5838709677419354, 0.6666666666666667),
    "bioes": (0.7091875474563403, 0.6166666666666667, 0.7109004739336494),
}


@pytest.mark.parametrize("processor", [BIO, BIOES], ids=["bio", "bioes"])
def test_scores_are_what_seqeval_gave_also_of_illegal_labels(processor):
    found = scores(processor, *random_labels(processor))
    values = [found[name].value for name in ("f1", "strict_f1", "PER/f1")]
    assert values == pytest.approx(SEQEVAL[processor.scheme], abs=1e-9)


@pytest.mark.parametrize("processor", [BIO, BIOES], ids=["bio", "bioes"])
def test_scores_equal_those_of_seqeval(processor):
    remedy = "seqeval is not installed; make test installs it, as does: pip install -e '.[dev]'"
    metrics = pytest.importorskip("seqeval.metrics", reason=remedy)
    scheme = pytest.importorskip("seqeval.scheme", reason=remedy)
    strict = {"mode": "strict", "scheme": scheme.IOB2 if processor is BIO else scheme.IOBES}
    gold, predicted = random_labels(processor)
    found = scores(processor, gold, predicted)
    for name in ("precision", "recall", "f1"):
        theirs = getattr(metrics, f"{name}_score")(gold, predicted)
        assert found[name].value == pytest.approx(theirs, abs=1e-12)
    assert found["strict_f1"].value == pytest.approx(metrics.f1_score(gold, predicted, **strict), abs=1e-12)
    report = metrics.classification_report(gold, predicted, output_dict=True, zero_division=0)
    for kind in ("PER", "LOC"):
        assert found[f"{kind}/f1"].value == pytest.approx(report[kind]["f1-score"], abs=1e-12)


def test_strict_entities_have_exactly_the_labels_of_their_scheme():
    assert strict_spans(["B-PER", "I-PER", "I-LOC"], "bio") == [LabelledSpan(0, 2, "PER")]
    assert strict_spans(["B-PER", "I-PER", "O", "S-LOC", "E-LOC"], "bioes") == [LabelledSpan(3, 4, "LOC")]
    assert strict_spans(["B-PER", "M-PER", "E-PER"], "bmes") == [LabelledSpan(0, 3, "PER")]
    assert count([[LabelledSpan(0, 1, "A")]], [[LabelledSpan(0, 1, "B")]]) == {
        "A": TypeScores(0, 0, 1),
        "B": TypeScores(0, 1, 0),
    }


def test_the_report_shows_types_confusions_and_both_markings():
    words = (("Ann", "Lee", "in", "Rome"), ("in", "Oslo"), ("Bo", "left"))
    examples = [TaggedSentence(str(i), w, tuple(g)) for i, (w, g) in enumerate(zip(words, GOLD, strict=True), 1)]
    types, confusion, wrong = (section.content for section in sections(BIO, examples, PREDICTED))
    assert types.rows[-1][0] == "all types"
    assert types.rows[-1][1:] == (0.5, 0.5, 0.5, 4, 4)
    assert confusion.header == ("type", "PER", "LOC", "no entity")
    assert confusion.rows == (("PER", 1, 0, 1), ("LOC", 1, 1, 0), ("no entity", 1, 0, 0))
    assert wrong.rows[0] == ("1", "[Ann Lee]PER in [Rome]LOC*", "[Ann Lee]PER in [Rome]PER*")
    assert wrong.rows[1] == ("3", "[Bo]PER* left", "Bo [left]PER*")
    assert len(wrong.rows) == 2
    *_, none = sections(BIO, examples, GOLD)
    assert (none.name, none.content.rows) == ("Sentences with most errors", ())


def test_markings_of_tags_and_of_characters():
    spans = TAGS.spans(["NOUN", "VERB"])
    assert bracketed(TAGS, ("fish", "swim"), spans, set(spans[:1])) == "fish [swim]VERB"
    chinese = TaggerProcessor(INPUTS, labels_of(("LOC",), "bio"), "bio", "characters")
    assert bracketed(chinese, tuple("在北京。"), spans_of(["O", "B-LOC", "I-LOC", "O"]), set()) == "在[北京]LOC*。"
