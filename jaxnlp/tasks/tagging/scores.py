"""Scores of predicted labels: precision, recall and F1 of entities as CoNLL counts them, and the report's sections.

With TP the number of entities whose words and type are right, precision = TP / predicted, recall = TP / gold, and F1 =
2 TP / (predicted + gold). Illegal sequences of labels are read as in the evaluation of CoNLL-2003. The strict scores
count only entities whose labels follow their scheme exactly. Both equal seqeval, in its default and its strict mode.

Sources: Tjong Kim Sang and De Meulder 2003; Nakayama 2018 (seqeval).
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from jaxnlp.pages.content import Table
from jaxnlp.tasks import Metric, MetricKind, Section
from jaxnlp.text.tag_schemes import LabelledSpan, Scheme, labels_of_spans, spans_of
from jaxnlp.text.tagger_processor import TaggedSentence, TaggerProcessor

MAX_TYPES = 40
"""Maximum number of types for an F1 of each type, and for the report's confusions of types."""
MAX_ERRORS = 30
"""Maximum number of sentences with wrong predictions in the report."""
NOTHING = "no entity"
_AVERAGE = "all types"


class TypeScores(NamedTuple):
    """Counts of entities of a type, or of labels."""

    right: int
    predicted: int
    gold: int

    @property
    def precision(self) -> float:
        """The share of right entities among the predicted ones; 0 if none is predicted."""
        return self.right / self.predicted if self.predicted else 0.0

    @property
    def recall(self) -> float:
        """The share of right entities among the gold ones; 0 if there are none."""
        return self.right / self.gold if self.gold else 0.0

    @property
    def f1(self) -> float:
        """The harmonic mean of precision and recall."""
        total = self.predicted + self.gold
        return 2.0 * self.right / total if total else 0.0


def strict_spans(labels: Sequence[str], scheme: Scheme) -> list[LabelledSpan]:
    """The entities whose labels follow the scheme exactly."""

    def is_whole(span: LabelledSpan) -> bool:
        length = span.stop - span.start
        return labels_of_spans([LabelledSpan(0, length, span.type)], length, scheme) == list(
            labels[span.start : span.stop]
        )

    return [span for span in spans_of(labels) if is_whole(span)]


def count(gold: Sequence[Sequence[LabelledSpan]], predicted: Sequence[Sequence[LabelledSpan]]) -> dict[str, TypeScores]:
    """The counts of the entities of each type that occurs."""
    rights, ours, theirs = Counter[str](), Counter[str](), Counter[str]()
    for marked, wanted in zip(predicted, gold, strict=True):
        rights.update(span.type for span in set(marked) & set(wanted))
        ours.update(span.type for span in marked)
        theirs.update(span.type for span in wanted)
    return {kind: TypeScores(rights[kind], ours[kind], theirs[kind]) for kind in sorted(theirs | ours)}


def micro_counts(counts: dict[str, TypeScores]) -> TypeScores:
    """The counts of all types together, for micro-averages."""
    return TypeScores(*map(sum, zip(*counts.values(), strict=True))) if counts else TypeScores(0, 0, 0)


def accuracy(gold: Sequence[Sequence[Any]], predicted: Sequence[Sequence[Any]]) -> Metric:
    """The share of words whose label is right; of several parts, all labels of the word."""
    pairs = [pair for rows in zip(gold, predicted, strict=True) for pair in zip(*rows, strict=True)]
    return Metric(sum(a == b for a, b in pairs) / max(len(pairs), 1), len(pairs))


def kinds(processor: TaggerProcessor) -> dict[str, MetricKind]:
    """The metrics of `scores`, for a processor of one part."""
    kinds = {"accuracy": MetricKind("words")}
    if processor.has_entities:
        titles = {"f1": "F1", "precision": "precision", "recall": "recall", "strict_f1": "strict F1"}
        kinds |= {name: MetricKind("entities", title=title) for name, title in titles.items()}
    if len(processor.types) <= MAX_TYPES:
        what = "entities" if processor.has_entities else "words"
        kinds |= {f"{kind}/f1": MetricKind(what, title=f"{kind} F1") for kind in processor.types}
    return kinds


def scores(
    processor: TaggerProcessor, gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]
) -> dict[str, Metric]:
    """All metrics of `kinds`, for the labels of sentences."""
    metrics = {"accuracy": accuracy(gold, predicted)}
    theirs, ours = ([processor.spans(labels) for labels in rows] for rows in (gold, predicted))
    counts = count(theirs, ours)
    if processor.has_entities:
        whole = micro_counts(counts)
        metrics |= {name: Metric(getattr(whole, name), whole.gold) for name in ("f1", "precision", "recall")}
        strict = [[strict_spans(labels, processor.scheme) for labels in rows] for rows in (gold, predicted)]
        metrics["strict_f1"] = Metric(micro_counts(count(*strict)).f1, whole.gold)
    if len(processor.types) <= MAX_TYPES:
        for kind in processor.types:
            of = counts.get(kind, TypeScores(0, 0, 0))
            metrics[f"{kind}/f1"] = Metric(of.f1, of.gold)
    return metrics


def sections(
    processor: TaggerProcessor, examples: Sequence[TaggedSentence], predicted: Sequence[Sequence[str]]
) -> list[Section]:
    """Sections of the report: scores of each type, confusions of types, and sentences with wrong predictions."""
    gold = [example.labels or () for example in examples]
    theirs, ours = ([processor.spans(labels) for labels in rows] for rows in (gold, predicted))
    counts = count(theirs, ours)
    sections = [Section("Scores of each type", _table_of_types(counts))]
    if len(processor.types) <= MAX_TYPES:
        sections.append(Section("Confusion of types", _confusion(processor, theirs, ours)))
    wrong = _wrong_sentences(processor, examples, theirs, ours)
    return [*sections, Section("Sentences with most errors", wrong)]


def _table_of_types(counts: dict[str, TypeScores]) -> Table:
    order = sorted(counts, key=lambda kind: (-counts[kind].gold, kind))
    rows = [(kind, counts[kind]) for kind in order] + [(_AVERAGE, micro_counts(counts))]
    cells: tuple[tuple[str | float | int | None, ...], ...] = tuple(
        (kind, of.f1, of.precision, of.recall, of.gold, of.predicted) for kind, of in rows
    )
    return Table(("type", "F1", "precision", "recall", "in the data", "predicted"), cells, bars=(1,))


def _confusion(
    processor: TaggerProcessor, gold: Sequence[Sequence[LabelledSpan]], predicted: Sequence[Sequence[LabelledSpan]]
) -> Table:
    """Pairs of gold and predicted types of entities with the same words."""
    pairs = Counter[tuple[str, str]]()
    for theirs, ours in zip(gold, predicted, strict=True):
        one, other = ({span[:2]: span.type for span in spans} for spans in (theirs, ours))
        pairs.update((one.get(words, NOTHING), other.get(words, NOTHING)) for words in one.keys() | other.keys())
    names = (*processor.types, NOTHING) if processor.has_entities else processor.types
    rows: tuple[tuple[str | int, ...], ...] = tuple((kind, *(pairs[kind, other] for other in names)) for kind in names)
    what = "entities with the same words" if processor.has_entities else "words"
    note = f"Rows are the types of the data, columns the predicted ones, of {what}."
    return Table(("type", *names), rows, note=note)


def _wrong_sentences(
    processor: TaggerProcessor,
    examples: Sequence[TaggedSentence],
    gold: Sequence[Sequence[LabelledSpan]],
    predicted: Sequence[Sequence[LabelledSpan]],
) -> Table:
    errors = [len(set(theirs) ^ set(ours)) for theirs, ours in zip(gold, predicted, strict=True)]
    worst = sorted(range(len(errors)), key=lambda index: (-errors[index], index))[:MAX_ERRORS]
    rows = tuple(
        (examples[index].name, bracketed(processor, examples[index].words, gold[index], set(predicted[index])),
         bracketed(processor, examples[index].words, predicted[index], set(gold[index])))
        for index in worst
        if errors[index]
    )  # fmt: skip
    note = "Entities are between brackets. A star marks an entity that the other column does not have."
    if not processor.has_entities:
        note = "Only labels that differ are shown."
    return Table(("sentence", "in the data", "predicted"), rows, note=note)


def bracketed(
    processor: TaggerProcessor, words: Sequence[str], spans: Sequence[LabelledSpan], other: set[LabelledSpan]
) -> str:
    """A sentence with its entities between brackets: [Peter Blackburn]PER."""
    between = "" if processor.unit == "characters" else " "
    parts, end = list[str](), 0
    for span in spans:
        parts += words[end : span.start]
        text = between.join(words[span.start : span.stop])
        if processor.has_entities:
            parts.append(f"[{text}]{span.type}{'' if span in other else '*'}")
        else:
            parts.append(text if span in other else f"[{text}]{span.type}")
        end = span.stop
    return between.join([*parts, *words[end:]])
