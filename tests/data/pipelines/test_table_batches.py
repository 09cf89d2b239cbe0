import numpy as np

from data.pipelines.table_batches import (
    oversampled,
    split_of_parts,
    table_buckets,
    table_split,
    tokenized,
    undersampled,
    unknown_shares,
)
from jaxnlp.targets import OneClass
from jaxnlp.text.classifier_processor import LabelledText, TextClassifierProcessor, TextPart, one_part
from jaxnlp.text.wordpiece import SPECIAL, WordPieceVocabulary

VOCABULARY = WordPieceVocabulary.of_pieces([*SPECIAL, "the", "cat"])
PROCESSOR = TextClassifierProcessor(VOCABULARY, 6, one_part(OneClass(("a", "b"))))
ROWS = [LabelledText(str(n), (" ".join(["the"] * n),), int(n == 3)) for n in (5, 1, 3, 2)]


def split_of(rows, processor=PROCESSOR, batch_size=4, lengths=(4, 6)):
    return table_split(rows, tokenized(processor, rows), processor, table_buckets(lengths, processor), batch_size)


def test_examples_have_the_length_that_a_batch_needs_and_truncated_ones_are_counted():
    examples, truncated = tokenized(PROCESSOR, ROWS)
    assert [example.length for example in examples] == [6, 3, 5, 4]
    assert (truncated, [example.label for example in examples]) == (1, [0, 0, 1, 0])


def test_a_split_is_sorted_by_length_and_padded_to_a_length():
    split = split_of(ROWS, batch_size=3)
    assert [batch["tokens"].shape for batch in split.batches] == [(3, 6), (3, 6)]
    assert [batch["loss_mask"].sum() for batch in split.batches] == [3, 1]
    assert (split.rows.tolist(), split.scored) == ([1, 3, 2, 0], True)
    assert [int(label) for batch in split.batches for label in batch["labels"][batch["loss_mask"]]] == [0, 0, 1, 0]
    assert split.notes == ("texts truncated to 6 tokens: 1",)


def test_a_batch_has_the_labels_of_its_rows_and_padding_of_the_length():
    examples, _ = tokenized(PROCESSOR, ROWS)
    batch = table_buckets((4, 6), PROCESSOR).pad(examples[2:], 3, 6)
    np.testing.assert_array_equal(batch["attention_mask"].sum(axis=1), [5, 4, 1])
    assert (batch["tokens"].shape, batch["labels"].tolist()) == ((3, 6), [1, 0, 0])


def test_rarer_classes_are_repeated_until_all_are_as_frequent():
    examples, _ = tokenized(PROCESSOR, ROWS)
    assert [example.label for example in oversampled(examples, PROCESSOR.targets)] == [0, 0, 0, 1, 1, 1]


def test_frequent_classes_lose_rows_until_all_are_as_rare():
    chosen = [undersampled(ROWS, PROCESSOR.targets, seed) for seed in range(20)]
    assert {tuple(sorted(row.label for row in few)) for few in chosen} == {(0, 1)}
    frequent = {row.name for few in chosen for row in few if row.label == 0}
    assert frequent == {row.name for row in ROWS if row.label == 0}  # with some seed, each is chosen
    assert undersampled(ROWS, PROCESSOR.targets, 3) == chosen[3]


def test_the_share_of_unknown_tokens_counts_special_tokens_but_no_padding():
    rows = [LabelledText("1", ("the dog",)), LabelledText("2", ("cat",))]
    split = split_of(rows, batch_size=2)
    assert unknown_shares({"test": split}, VOCABULARY) == {"test": 1 / 7}


def test_a_split_of_parts_has_the_batches_of_scored_parts_and_notes_that_name_theirs():
    parts = (("a", TextPart(PROCESSOR.targets)), ("b", TextPart(PROCESSOR.targets)))
    both = TextClassifierProcessor(VOCABULARY, 6, parts).by_part
    unlabelled = [LabelledText(row.name, row.texts) for row in ROWS]
    scored, unscored = split_of(ROWS, both["a"]), split_of(unlabelled, both["b"])
    split = split_of_parts({"a": scored, "b": unscored})
    assert [batch.keys() - {"tokens", "segments", "attention_mask", "loss_mask"} for batch in split.batches] == [
        {"a/labels"}
    ]
    assert split.notes == ("a: texts truncated to 6 tokens: 1", "b: texts truncated to 6 tokens: 1")
    assert (split.scored, split.parts["a"].scored, split.parts["b"].scored) == (True, True, False)
