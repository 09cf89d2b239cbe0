"""The summary of a data set of labelled sentences that a run prints at its start."""

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from data.readers.raw_sentences import Counts
from data.readers.repeated import repeated_notes
from jaxnlp.text import most_frequent
from jaxnlp.text.tagger_processor import TaggedSentence, TaggerProcessor

SHOWN_TYPES = 20
"""Maximum number of types whose counts the summary shows."""


def summary(
    processor: TaggerProcessor,
    splits: Mapping[str, Sequence[TaggedSentence]],
    counts: Counts,
) -> str:
    """Lines with the numbers of sentences, words, types and unknown words, and with possible problems.

    Args:
      processor: the processor of the data.
      splits: the sentences of each split, `training` first.
      counts: the counts of the training sentences. Those of the other splits are their notes, which a run also prints.
    """
    lines = []
    for name, sentences in splits.items():
        lengths = [len(one.words) for one in sentences]
        noun = "sentence" if len(lengths) == 1 else "sentences"
        line = f"{name}: {len(lengths):,} {noun}, {sum(lengths):,} {processor.unit}, longest {max(lengths)}"
        if name != "training":
            words = [word for one in sentences for word in one.words]
            line += f", {processor.inputs.unknown(words) / len(words):.1%} unknown"
        lines.append(line)
    train = splits["training"]
    for part, one in processor.by_part.items():
        labels = [processor.divide(sentence.labels or ())[part] for sentence in train]
        kinds = Counter(span.type for row in labels for span in one.spans(row))
        order = most_frequent(kinds)
        shown = ", ".join(f"{kind} {kinds[kind]:,}" for kind in order[:SHOWN_TYPES])
        more = f", and {len(order) - SHOWN_TYPES} more" if len(order) > SHOWN_TYPES else ""
        what = f"{sum(kinds.values()):,} entities" if one.has_entities else f"{part} labels".strip()
        lines.append(f"{what} of {len(order)} types in training: {shown}{more}")
    if schemes := dict.fromkeys(one.scheme for rows in splits.values() for one in rows if one.scheme):
        lines.append(f"labels are read as {' and '.join(schemes)} and converted to {processor.scheme}")
    lines += [f"training: {note}" for note in counts.notes()]
    texts = {name: [(" ".join(one.words),) for one in sentences] for name, sentences in splits.items()}
    lines += repeated_notes("sentences", texts.pop("training"), texts)
    half, most = np.percentile([len(one.words) for one in train], [50, 95])
    sizes = f"{len(processor.inputs.words):,} words and {len(processor.inputs.characters):,} characters"
    lines.append(f"length of training sentences: median {half:.0f}, 95% have at most {most:.0f}")
    lines.append(f"{sizes} in the vocabulary, {sum(len(one.labels) for one in processor.by_part.values())} labels")
    return "\n".join(lines)
