"""The most probable labels of sentences, and their probabilities."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxnlp.inference import batches
from jaxnlp.inference.batches import BatchFunction, Shape, in_batches, text_shapes
from jaxnlp.inference.exportable import Exportable, axes_of_batches
from jaxnlp.models.tagger import LabelScores
from jaxnlp.ops.compiler_options import jit
from jaxnlp.ops.crf import Chain, crf_marginals
from jaxnlp.ops.viterbi_paths import viterbi
from jaxnlp.tasks import Trained
from jaxnlp.text.tagger_processor import TaggedSentence, TaggerProcessor
from jaxnlp.typing import Array, Batch, Params


class Labelled(NamedTuple):
    """The prediction for a sentence.

    Attributes:
      labels: the predicted labels [T].
      confidence: the marginal probability of each label [T].
    """

    labels: list[str]
    confidence: list[float]


def decoding_chain(chain: Chain, processor: TaggerProcessor, *, constrained: bool) -> Chain:
    """Transitions, start and end for predictions: -inf for what the scheme forbids."""
    if not constrained:
        return chain
    forbidden = (np.where(ok, np.float32(0.0), np.float32(-np.inf)) for ok in processor.allowed)
    return Chain(*(x + never for x, never in zip(chain, forbidden, strict=True)))


def best_labels(model: Any, processor: TaggerProcessor, constrained: bool) -> Callable[[Params, Batch], Array]:
    """A function of parameters and a batch: the ids of the best labels [B, T]; T is the maximum of all batches."""

    def predict(params: Params, batch: Batch) -> Array:
        output, lengths = _scores(model, params, batch)
        labels, _ = viterbi(output.scores, lengths, decoding_chain(output.chain, processor, constrained=constrained))
        room = processor.inputs.longest - labels.shape[1]
        return jnp.pad(labels, ((0, 0), (0, room)))

    return predict


def labels_and_confidence(
    model: Any, processor: TaggerProcessor, *, constrained: bool
) -> Callable[[Params, Batch], tuple[Array, Array]]:
    """A function of parameters and a batch: the best labels [B, T], and their marginal probabilities [B, T]."""

    def predict(params: Params, batch: Batch) -> tuple[Array, Array]:
        output, lengths = _scores(model, params, batch)
        chain = decoding_chain(output.chain, processor, constrained=constrained)
        labels, _ = viterbi(output.scores, lengths, chain)
        marginals = crf_marginals(output.scores, lengths, chain)
        return labels, jnp.take_along_axis(marginals, labels[:, :, None], axis=-1)[..., 0]

    return predict


def _scores(model: Any, params: Params, batch: Batch) -> tuple[LabelScores, Array]:
    output = model.apply({"params": params}, *(batch[name] for name in model.config.reads))
    return output, batch["word_mask"].sum(axis=1)


@functools.partial(jit, static_argnums=(0, 1, 2))
def _predict(model: Any, processor: TaggerProcessor, constrained: bool, params: Params, batch: Batch) -> Any:
    return labels_and_confidence(model, processor, constrained=constrained)(params, batch)


def label_sentences(trained: Trained, sentences: Sequence[Sequence[str]]) -> list[Labelled]:
    """The labels of sentences of words. It divides sentences that are too long, and joins their labels.

    Raises: ValueError for a sentence without words, or a word that is too long for the BERT.
    """
    processor: TaggerProcessor = trained.processor
    parts = []
    for index, words in enumerate(sentences):
        if not words:
            raise ValueError(f"sentence {index + 1} has no words")
        parts += [(index, tuple(words[part])) for part in processor.inputs.parts(words)]
    encoded = [processor.encode(TaggedSentence("", words)) for _, words in parts]
    lengths = list(map(processor.inputs.encoded_length, encoded))
    rows = in_batches(lengths, text_shapes(processor.inputs.longest), _labeller(trained, encoded))
    whole = [Labelled([], []) for _ in sentences]
    for (index, words), (labels, confidence) in zip(parts, rows, strict=True):
        whole[index].labels.extend(processor.labels[label] for label in labels[: len(words)])
        whole[index].confidence.extend(confidence[: len(words)].tolist())
    return whole


def warm_up(trained: Trained) -> None:
    """Compiles the programs of `label_sentences` ahead."""
    batches.warm_up(text_shapes(trained.processor.inputs.longest), _labeller(trained, ()))


def _labeller(trained: Trained, encoded: Sequence[dict[str, np.ndarray]]) -> BatchFunction:
    """Labels [B, T] and their probabilities of batches of encoded sentences."""
    task: Any = trained.task

    def compute(indices: Sequence[int], shape: Shape) -> tuple[jax.Array, jax.Array]:
        batch = trained.processor.batch([encoded[index] for index in indices], *shape)
        return _predict(trained.model, trained.processor, task.constrained, trained.separate_params, batch)

    return compute


def exports(trained: Trained) -> dict[str, Exportable]:
    """`tag`: the best labels of sentences and their probabilities; `score`: the scores of all labels, and the chain."""
    model: Any = trained.model
    task: Any = trained.task
    processor: TaggerProcessor = trained.processor
    predict = labels_and_confidence(model, processor, constrained=task.constrained)

    def apply(params: Params, inputs: Batch) -> dict[str, Array]:
        labels, confidence = predict(params, inputs)
        return {"labels": labels, "confidence": confidence}

    def score(params: Params, inputs: Batch) -> dict[str, Array]:
        output, _ = _scores(model, params, inputs)
        return {"scores": output.scores, **output.chain._asdict()}

    axes, inputs = axes_of_batches(  # the loops over transitions have at least one step
        functools.partial(processor.batch, ()), model.config.reads, longest=processor.inputs.longest, shortest=2
    )
    labels, scores = "labels [B, T] of words, and their confidence [B, T]", "scores [B, T, C] of labels, and the chain"
    return {
        "tag": Exportable(labels, apply, axes, inputs, processor.labels, onnx=False),
        "score": Exportable(scores, score, axes, inputs, processor.labels),
    }
