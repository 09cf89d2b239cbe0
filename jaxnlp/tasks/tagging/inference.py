"""The most probable labels of sentences, and their probabilities."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxnlp.inference import batches
from jaxnlp.inference.batches import BatchFunction, Shape, in_batches, text_shapes
from jaxnlp.inference.exportable import Exportable, axes_of_batches
from jaxnlp.models.tagger import LabelScores, by_part, only_or_all
from jaxnlp.ops.compiler_options import jit
from jaxnlp.ops.crf import Chain, crf_marginals
from jaxnlp.ops.crf_viterbi import viterbi
from jaxnlp.targets import of_part
from jaxnlp.tasks import Trained
from jaxnlp.text.tagger_processor import TaggedSentence, TaggerProcessor, neighbours
from jaxnlp.typing import Array, Batch, Params


class Labelled(NamedTuple):
    """The prediction for a sentence.

    Attributes:
      labels: the predicted labels [T], or of several parts a tuple of labels for each word.
      confidence: the marginal probability of each label [T]; of several parts the lowest for each word.
    """

    labels: list[Any]
    confidence: list[float]


def decoding_chain(chain: Chain, processor: TaggerProcessor, *, constrained: bool) -> Chain:
    """Transitions, start and end for predictions: -inf for what the scheme forbids."""
    if not constrained:
        return chain
    forbidden = (np.where(ok, np.float32(0.0), np.float32(-np.inf)) for ok in processor.allowed)
    return Chain(*(x + never for x, never in zip(chain, forbidden, strict=True)))


def best_labels(model: Any, processor: TaggerProcessor, constrained: bool) -> Callable[[Params, Batch], Any]:
    """A function of parameters and a batch: the ids of the best labels [B, T], or of each part's, by name; T is the
    maximum of all batches."""

    def predict(params: Params, batch: Batch) -> Any:
        outputs, lengths = _scores(model, params, batch)
        found = {}
        for name, one in processor.by_part.items():
            chain = decoding_chain(outputs[name].chain, one, constrained=constrained)
            labels, _ = viterbi(outputs[name].scores, lengths, chain)
            room = processor.inputs.longest - labels.shape[1]
            found[name] = jnp.pad(labels, ((0, 0), (0, room)))
        return only_or_all(found)

    return predict


def labels_and_confidence(
    model: Any, processor: TaggerProcessor, *, constrained: bool
) -> Callable[[Params, Batch], tuple[Any, Any]]:
    """A function of parameters and a batch: the best labels [B, T], and their marginal probabilities [B, T]; of several
    parts by name."""

    def predict(params: Params, batch: Batch) -> tuple[Any, Any]:
        outputs, lengths = _scores(model, params, batch)
        best, confidence = dict[str, Array](), dict[str, Array]()
        for name, one in processor.by_part.items():
            chain = decoding_chain(outputs[name].chain, one, constrained=constrained)
            best[name], _ = viterbi(outputs[name].scores, lengths, chain)
            marginals = crf_marginals(outputs[name].scores, lengths, chain)
            confidence[name] = jnp.take_along_axis(marginals, best[name][:, :, None], axis=-1)[..., 0]
        return only_or_all(best), only_or_all(confidence)

    return predict


def _scores(model: Any, params: Params, batch: Batch) -> tuple[Mapping[str, LabelScores], Array]:
    """The outputs for each part, by name, and the lengths of the sentences [B]."""
    output = model.apply({"params": params}, *(batch[name] for name in model.config.reads))
    return by_part(output), batch["word_mask"].sum(axis=1)


@functools.partial(jit, static_argnums=(0, 1, 2))
def _predict(model: Any, processor: TaggerProcessor, constrained: bool, params: Params, batch: Batch) -> Any:
    return labels_and_confidence(model, processor, constrained=constrained)(params, batch)


def label_sentences(
    trained: Trained, sentences: Sequence[Sequence[str]], *, of_one_text: bool = False
) -> list[Labelled]:
    """The labels of sentences of words. Splits sentences that are too long, and joins their labels.

    Args: of_one_text: whether the sentences follow each other, so that a model with context reads their neighbours.

    Raises: ValueError for a sentence without words, or a word that is too long for the BERT.
    """
    processor: TaggerProcessor = trained.processor
    parts = []
    around = neighbours(sentences, processor.context if of_one_text else 0)
    for index, (words, (before, after)) in enumerate(zip(sentences, around, strict=True)):
        if not words:
            raise ValueError(f"sentence {index + 1} has no words")
        sentence = TaggedSentence("", tuple(words), before=before, after=after)
        parts += [(index, sentence.part("", part)) for part in processor.inputs.parts(words)]
    encoded = [processor.encode(part) for _, part in parts]
    lengths = list(map(processor.inputs.encoded_length, encoded))
    rows = in_batches(lengths, text_shapes(processor.inputs.longest), _labeller(trained, encoded))
    whole = [Labelled([], []) for _ in sentences]
    for (index, part), (labels, confidence) in zip(parts, rows, strict=True):
        whole[index].labels.extend(named(processor, labels, len(part.words)))
        lowest = functools.reduce(np.minimum, by_part(confidence).values())
        whole[index].confidence.extend(lowest[: len(part.words)].tolist())
    return whole


def named(processor: TaggerProcessor, labels: Any, length: int) -> list[Any]:
    """The labels of a sentence from their ids [T], or from each part's, by name; only the first `length`."""
    ids, parts = by_part(labels), processor.by_part
    return processor.join({name: [one.labels[i] for i in ids[name][:length]] for name, one in parts.items()})


def warm_up(trained: Trained) -> None:
    """Compiles the programs of `label_sentences` ahead."""
    batches.warm_up(text_shapes(trained.processor.inputs.longest), _labeller(trained, ()))


def _labeller(trained: Trained, encoded: Sequence[dict[str, np.ndarray]]) -> BatchFunction:
    """The results of `labels_and_confidence` for batches of encoded sentences."""
    task: Any = trained.task

    def compute(indices: Sequence[int], shape: Shape) -> tuple[Any, Any]:
        batch = trained.processor.batch([encoded[index] for index in indices], *shape)
        return _predict(trained.model, trained.processor, task.constrained, trained.inference_params, batch)

    return compute


def exports(trained: Trained) -> dict[str, Exportable]:
    """`tag`: the best labels of sentences and their probabilities; `score`: the scores of all labels, and the chain;
    for several parts `upos/labels` and so on."""
    model: Any = trained.model
    task: Any = trained.task
    processor: TaggerProcessor = trained.processor
    predict = labels_and_confidence(model, processor, constrained=task.constrained)

    def apply(params: Params, inputs: Batch) -> dict[str, Array]:
        found = zip(("labels", "confidence"), predict(params, inputs), strict=True)
        return {of_part(name, field): x for field, parts in found for name, x in by_part(parts).items()}

    def score(params: Params, inputs: Batch) -> dict[str, Array]:
        outputs, _ = _scores(model, params, inputs)
        fields = {name: {"scores": one.scores, **one.chain._asdict()} for name, one in outputs.items()}
        return {of_part(name, field): x for name, one in fields.items() for field, x in one.items()}

    axes, inputs = axes_of_batches(  # the loops over transitions have at least one step
        functools.partial(processor.batch, ()), model.config.reads, longest=processor.inputs.longest, shortest=2
    )
    labels, scores = "labels [B, T] of words, and their confidence [B, T]", "scores [B, T, C] of labels, and the chain"
    names = only_or_all({name: one.labels for name, one in processor.by_part.items()})
    return {
        "tag": Exportable(labels, apply, axes, inputs, names, onnx=False),
        "score": Exportable(scores, score, axes, inputs, names),
    }
