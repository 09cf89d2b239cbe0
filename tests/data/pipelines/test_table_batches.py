from data.pipelines.table_batches import (
    oversampled,
    split_of_parts,
    table_split,
    tokenized,
    training_batches,
    unknown_shares,
)
from jaxnlp.targets import OneClass
from jaxnlp.text.classifier_processor import LabelledText, TextClassifierProcessor, TextPart, one_part
from jaxnlp.text.wordpiece import SPECIAL, WordPieceVocabulary

VOCABULARY = WordPieceVocabulary.of_pieces([*SPECIAL, "the", "cat"])
PROCESSOR = TextClassifierProcessor(VOCABULARY, 6, one_part(OneClass(("a", "b"))))
ROWS = [LabelledText(str(n), (" ".join(["the"] * n),), int(n == 3)) for n in (5, 1, 3, 2)]


def test_examples_have_the_length_that_a_batch_needs_and_truncated_ones_are_counted():
    examples, truncated = tokenized(PROCESSOR, ROWS)
    assert [example.length for example in examples] == [6, 3, 5, 4]
    assert (truncated, [example.label for example in examples]) == (1, [0, 0, 1, 0])


def test_a_split_is_sorted_by_length_and_padded_to_a_multiple():
    split = table_split(ROWS, PROCESSOR, batch_size=3, multiple=2)
    assert [batch["tokens"].shape for batch in split.batches] == [(3, 6), (3, 6)]
    assert [batch["loss_mask"].sum() for batch in split.batches] == [3, 1]
    assert (split.rows.tolist(), split.scored) == ([1, 3, 2, 0], True)
    assert [int(label) for batch in split.batches for label in batch["labels"][batch["loss_mask"]]] == [0, 0, 1, 0]
    assert split.notes == ("texts truncated to 6 tokens: 1",)


def test_training_batches_have_all_examples_and_the_length_of_the_longest():
    examples, _ = tokenized(PROCESSOR, 50 * ROWS)  # Grain shuffles few examples slowly
    batches = iter(training_batches(examples, PROCESSOR, order_seed=0, pool_seed=0, batch_size=2, multiple=2))
    masks = [next(batches)["attention_mask"] for _ in range(20)]
    assert {int(length) for mask in masks for length in mask.sum(axis=1)} == {3, 4, 5, 6}
    assert {mask.shape for mask in masks} <= {(2, 4), (2, 6)}


def test_rarer_classes_are_repeated_until_all_are_as_frequent():
    examples, _ = tokenized(PROCESSOR, ROWS)
    assert [example.label for example in oversampled(examples, PROCESSOR.targets)] == [0, 0, 0, 1, 1, 1]


def test_the_share_of_unknown_tokens_counts_special_tokens_but_no_padding():
    rows = [LabelledText("1", ("the dog",)), LabelledText("2", ("cat",))]
    split = table_split(rows, PROCESSOR, batch_size=2, multiple=4)
    assert unknown_shares({"test": split}, VOCABULARY) == {"test": 1 / 7}


def test_a_split_of_parts_has_the_batches_of_scored_parts_and_notes_that_name_theirs():
    parts = (("a", TextPart(PROCESSOR.targets)), ("b", TextPart(PROCESSOR.targets)))
    both = TextClassifierProcessor(VOCABULARY, 6, parts).by_part
    unlabelled = [LabelledText(row.name, row.texts) for row in ROWS]
    options = {"batch_size": 4, "multiple": 2}
    split = split_of_parts(
        {"a": table_split(ROWS, both["a"], **options), "b": table_split(unlabelled, both["b"], **options)}
    )
    assert [batch.keys() - {"tokens", "segments", "attention_mask", "loss_mask"} for batch in split.batches] == [
        {"a/labels"}
    ]
    assert split.notes == ("a: texts truncated to 6 tokens: 1", "b: texts truncated to 6 tokens: 1")
    assert (split.scored, split.parts["a"].scored, split.parts["b"].scored) == (True, True, False)
