"""Evaluation of taggers: F1 of entities, accuracy of labels, a file of predictions, and the report's sections."""

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from jaxnlp.corpus import SourceRows
from jaxnlp.ops.crf import Chain
from jaxnlp.pages.content import HeatMap
from jaxnlp.targets import of_part
from jaxnlp.tasks import Evaluation, Evaluator, Scoring, Section
from jaxnlp.tasks.tagging import scores as tagging_scores
from jaxnlp.tasks.tagging.inference import best_labels, decoding_chain, named
from jaxnlp.text.conllu import UNSPECIFIED, sentence_of, written
from jaxnlp.text.tag_schemes import convert
from jaxnlp.text.tagger_processor import TaggedSentence, TaggerProcessor
from jaxnlp.typing import Batch, Params

MAX_LABELS = 60
"""Maximum number of labels for which the report draws the transitions."""


@dataclasses.dataclass(frozen=True)
class Validation(Evaluator):
    """F1, precision and recall of entities as CoNLL counts them, accuracy of labels, and predictions of all words.

    The file of predictions has the scheme of the split's labels, or else of training. A model of several kinds of tags
    writes CoNLL-U: the given lines with the predicted tags.
    """

    def compile_ahead(self, scoring: Scoring) -> None:
        super().compile_ahead(scoring)
        scoring.compile_outputs(_predict(scoring))

    def __call__(self, scoring: Scoring) -> Evaluation:
        trained, examples = scoring.trained, scoring.split.examples
        processor: TaggerProcessor = trained.processor
        ids = scoring.outputs(_predict(scoring))
        predicted = [
            named(processor, jax.tree.map(lambda x, row=row: x[row], ids), len(one.words))
            for row, one in enumerate(examples)
        ]
        examples, predicted = whole_sentences(examples, predicted)
        if processor.parts:
            files = {"predictions.conllu": conllu(processor, examples, predicted, scoring.split.source)}
        else:
            files = {"predictions.conll": conll(examples, predicted, scoring.split.source)}
        if not scoring.split.scored:
            return Evaluation({}, files)
        metrics, sections = scoring.sums(), list[Section]()
        metrics["accuracy"] = tagging_scores.accuracy([one.labels or () for one in examples], predicted)
        for name, one in processor.by_part.items():
            gold = [processor.divide(example.labels or ())[name] for example in examples]
            found = [processor.divide(labels)[name] for labels in predicted]
            scores = tagging_scores.scores(one, gold, found)
            metrics |= {of_part(name, metric): value for metric, value in scores.items()}
            labelled = [dataclasses.replace(e, labels=tuple(row)) for e, row in zip(examples, gold, strict=True)]
            own = tagging_scores.sections(one, labelled, found)
            own[-1:-1] = _learnt(scoring, name, one)  # before the section of sentences, which is long
            sections += [section._replace(name=f"{name}: {section.name}") if name else section for section in own]
        return Evaluation(metrics, files, sections)


def _predict(scoring: Scoring) -> Callable[[Params, Batch], Any]:
    task: Any = scoring.trained.task
    return scoring.once(best_labels, scoring.trained.model, scoring.trained.processor, task.constrained)


def whole_sentences(
    examples: Sequence[TaggedSentence], predicted: Sequence[list[str]]
) -> tuple[list[TaggedSentence], list[list[str]]]:
    """Sentences and predicted labels; joins the parts of a split sentence, such as 3.1 and 3.2."""
    wholes, labels = list[TaggedSentence](), list[list[str]]()
    pairs = zip(examples, predicted, strict=True)
    for name, group in itertools.groupby(pairs, key=lambda pair: pair[0].name.partition(".")[0]):
        parts, part_labels = zip(*group, strict=True)
        gold = None if parts[0].labels is None else tuple(label for part in parts for label in part.labels)
        words = tuple(word for part in parts for word in part.words)
        wholes.append(TaggedSentence(name, words, gold, parts[0].scheme, parts[0].source))
        labels.append([label for one in part_labels for label in one])
    return wholes, labels


def conll(
    examples: Sequence[TaggedSentence], predicted: Sequence[Sequence[Any]], source: SourceRows | None = None
) -> str:
    """Sentences as columns separated by tabs: the word, its label if known, and the predicted label.

    Labels are in the scheme of the sentence's file, if known. In a file with other sentences too, `source`, these have
    empty lines, and a label that is not known is _.
    """
    sentences = []
    for one, labels in zip(examples, predicted, strict=True):
        rows = [labels] if one.labels is None else [one.labels, labels]
        if one.scheme is not None:
            rows = [convert(row, one.scheme) for row in rows]
        if one.labels is None and source is not None:
            rows = [(UNSPECIFIED,) * len(labels), *rows]
        sentences.append("".join("\t".join(row) + "\n" for row in zip(one.words, *rows, strict=True)))
    return "\n".join(_in_places(examples, sentences, source))


def conllu(
    processor: TaggerProcessor,
    examples: Sequence[TaggedSentence],
    predicted: Sequence[Sequence[Any]],
    source: SourceRows | None = None,
) -> str:
    """Sentences of CoNLL-U with the predicted tags of all parts. Multiword tokens, empty nodes and comments stay.

    Args: source: as for `conll`.
    """
    sentences = [
        written([(one.source or sentence_of(one.words, name=one.name)).with_tags(processor.divide(labels))])
        for one, labels in zip(examples, predicted, strict=True)
    ]
    return "".join(_in_places(examples, sentences, source, end="\n"))


def _in_places(
    examples: Sequence[TaggedSentence], texts: Sequence[str], source: SourceRows | None, end: str = ""
) -> Sequence[str]:
    """The text of each sentence, in a file with other sentences too at its place."""
    names = [one.name for one in examples]
    return texts if source is None else source.with_gaps(dict(zip(names, texts, strict=True)), end)


def _learnt(scoring: Scoring, part: str, processor: TaggerProcessor) -> list[Section]:
    """The transitions of a part for the report; [] without a CRF, and for many labels."""
    trained: Any = scoring.trained
    if not trained.model.config.crf or len(processor.labels) > MAX_LABELS:
        return []
    params, suffix = scoring.whole_params(), f"_{part}" if part else ""
    chain = Chain(*(jax.device_get(params[f"{name}{suffix}"]) for name in ("transitions", "start", "end")))
    return [_transitions(chain, processor, constrained=trained.task.constrained)]


def _transitions(chain: Chain, processor: TaggerProcessor, *, constrained: bool) -> Section:
    """A section with the CRF's scores of the next label, as shares of exp(score)."""
    chain = decoding_chain(chain, processor, constrained=constrained)
    rows = np.vstack([chain.start, chain.transitions])  # the first row: the first label of a sentence
    ends = np.concatenate([[-np.inf], chain.end])
    scores = np.concatenate([rows, ends[:, None]], axis=1)
    shares = np.exp(scores - scores.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    note = (
        "Rows are labels, columns the label that follows. The stronger the colour, the greater the share of "
        "exp(transition). The model adds the scores of the words."
    )
    names = ("(begin)", *processor.labels)
    weights = tuple(tuple(row) for row in shares.round(4).tolist())
    return Section("Learnt transitions", HeatMap(names, (*processor.labels, "(end)"), weights, note=note))
