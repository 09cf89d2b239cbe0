"""The summary of a table of labelled texts that a run prints at its start."""

from collections.abc import Mapping, Sequence

import numpy as np

from data.readers.repeated import repeated_notes
from jaxnlp.targets import Number, Targets
from jaxnlp.text.classifier_processor import LabelledText, TextClassifierProcessor


def summary(
    processor: TextClassifierProcessor,
    train: Sequence[LabelledText],
    splits: Mapping[str, Sequence[LabelledText]],
    lengths: Sequence[int],
    truncated: int,
    *,
    unknown: Mapping[str, float] | None = None,
) -> str:
    """Lines with the numbers of rows, classes and tokens, and with possible problems.

    Args:
      processor: of the data.
      train: the rows for training.
      splits: the rows of the other splits, by name.
      lengths: of the training examples, in tokens.
      truncated: number of truncated training examples.
      unknown: share of unknown tokens in each split, by name.
    """
    targets, counted = processor.targets, processor.counted
    numbers = ", ".join(
        [f"{len(train):,} for training", *(f"{len(rows):,} for {name}" for name, rows in splits.items())]
    )
    lines = [f"{counted}: {numbers}"]
    labels = [row.label for row in train]
    lines.append(targets.describe(labels))
    half, most = np.percentile(lengths, [50, 95])
    note = f"; {counted} for training truncated to {processor.max_length}: {truncated:,}" if truncated else ""
    what = "tokens of the longer text" if processor.apart else "tokens"
    lines.append(f"{what}: median {half:.0f}, 95% have at most {most:.0f}, maximum {max(lengths)}{note}")
    texts = {name: [row.texts for row in rows] for name, rows in splits.items()}
    lines += repeated_notes(counted, [row.texts for row in train], texts)
    lines += _classes_without_rows(targets, splits)
    lines += _unreachable_numbers(targets, splits)
    shares = "".join(f"; {share:.1%} of the tokens of {name} are unknown" for name, share in (unknown or {}).items())
    lines.append(f"{processor.vocabulary.size:,} tokens in the vocabulary{shares}")
    return "\n".join(lines)


def _classes_without_rows(targets: Targets, splits: Mapping[str, Sequence[LabelledText]]) -> list[str]:
    """Notes on labelled splits without some classes, whose F1 is not measured there."""
    notes = list[str]()
    for name, rows in splits.items():
        labelled = all(row.label is not None for row in rows)
        counts = targets.counts([row.label for row in rows]) if labelled else None
        if counts is None:
            continue
        missing = [label for label, count in zip(targets.names, counts, strict=True) if not count]
        if missing:
            notes.append(f"{name} has no row of {len(missing):,} of the classes, such as {missing[0]}")
    return notes


def _unreachable_numbers(targets: Targets, splits: Mapping[str, Sequence[LabelledText]]) -> list[str]:
    """Notes on splits with numbers outside the scale of training, which no prediction reaches."""
    if not isinstance(targets, Number):
        return []
    notes = list[str]()
    for name, rows in splits.items():
        numbers = [row.label for row in rows if row.label is not None]
        if outside := [number for number in numbers if not targets.lowest <= number <= targets.highest]:
            notes.append(
                f"numbers of {name} beyond those of training, which no prediction reaches: {len(outside):,} of "
                f"{len(numbers):,}, such as {outside[0]:g}"
            )
    return notes
