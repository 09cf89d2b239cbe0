"""Evaluation of taggers: F1 of entities, accuracy of labels, a file of predictions, and the report's blocks."""

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from jaxnlp.ops.crf import Chain
from jaxnlp.pages.blocks import HeatMap
from jaxnlp.tasks import Block, Evaluation, Evaluator, Scoring
from jaxnlp.tasks.tagging import scores as tagging_scores
from jaxnlp.tasks.tagging.inference import best_labels, decoding_chain
from jaxnlp.text.tag_schemes import convert
from jaxnlp.text.tagger_processor import TaggedSentence, TaggerProcessor
from jaxnlp.typing import Array, Batch, Params

MAX_LABELS = 60
"""Maximum number of labels for which the report draws the transitions."""


@dataclasses.dataclass(frozen=True)
class Validation(Evaluator):
    """F1, precision and recall of entities as CoNLL counts them, accuracy of labels, and predictions of all words.

    The file of predictions has the scheme of the split's labels. Without labels it has the training scheme.
    """

    def compile_ahead(self, scoring: Scoring) -> None:
        super().compile_ahead(scoring)
        scoring.compile_outputs(_predict(scoring))

    def __call__(self, scoring: Scoring) -> Evaluation:
        trained, examples = scoring.trained, scoring.split.examples
        processor: TaggerProcessor = trained.processor
        task: Any = trained.task
        constrained = task.constrained
        ids = scoring.outputs(_predict(scoring))
        predicted = [
            [processor.labels[label] for label in row[: len(one.words)]] for row, one in zip(ids, examples, strict=True)
        ]
        examples, predicted = whole_sentences(examples, predicted)
        files = {"predictions.conll": conll(examples, predicted)}
        if not scoring.split.scored:
            return Evaluation({}, files)
        gold = [one.labels or () for one in examples]
        metrics = scoring.sums() | tagging_scores.scores(processor, gold, predicted)
        blocks = tagging_scores.blocks(processor, examples, predicted)
        config: Any = trained.model.config
        if config.crf and len(processor.labels) <= MAX_LABELS:
            params = scoring.whole_params()
            chain = Chain(*(jax.device_get(params[name]) for name in ("transitions", "start", "end")))
            # Before the block of sentences, which is long.
            blocks.insert(-1, _transitions(chain, processor, constrained=constrained))
        return Evaluation(metrics, files, blocks)


def _predict(scoring: Scoring) -> Callable[[Params, Batch], Array]:
    task: Any = scoring.trained.task
    return scoring.once(best_labels, scoring.trained.model, scoring.trained.processor, task.constrained)


def whole_sentences(
    examples: Sequence[TaggedSentence], predicted: Sequence[list[str]]
) -> tuple[list[TaggedSentence], list[list[str]]]:
    """Sentences and predicted labels; joins the parts of a divided sentence, such as 3.1 and 3.2."""
    wholes, labels = list[TaggedSentence](), list[list[str]]()
    pairs = zip(examples, predicted, strict=True)
    for name, group in itertools.groupby(pairs, key=lambda pair: pair[0].name.partition(".")[0]):
        parts, part_labels = zip(*group, strict=True)
        gold = None if parts[0].labels is None else tuple(label for part in parts for label in part.labels)
        words = tuple(word for part in parts for word in part.words)
        wholes.append(TaggedSentence(name, words, gold, parts[0].scheme))
        labels.append([label for one in part_labels for label in one])
    return wholes, labels


def conll(examples: Sequence[TaggedSentence], predicted: Sequence[Sequence[str]]) -> str:
    """Sentences as columns separated by tabs: the word, its label if it is known, and the predicted label.

    Labels are in the scheme of the sentence's file, if it is known.
    """
    sentences = []
    for one, labels in zip(examples, predicted, strict=True):
        rows = [labels] if one.labels is None else [one.labels, labels]
        if one.scheme is not None:
            rows = [convert(row, one.scheme) for row in rows]
        sentences.append("".join("\t".join(row) + "\n" for row in zip(one.words, *rows, strict=True)))
    return "\n".join(sentences)


def _transitions(chain: Chain, processor: TaggerProcessor, *, constrained: bool) -> Block:
    """A block with the CRF's scores of the next label, as shares of exp(score)."""
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
    return Block("Learnt transitions", HeatMap(names, (*processor.labels, "(end)"), weights, note=note))
