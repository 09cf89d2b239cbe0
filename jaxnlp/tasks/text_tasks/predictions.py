"""Predictions of the parts of a trained model of text tasks."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxnlp.inference.arguments import one_or_many
from jaxnlp.tasks import Trained
from jaxnlp.tasks.bert_verbs.encodings import (
    TextOutputs,
    embed_texts,
    l2_normalize,
    outputs_of,
    warm_up_embed,
    warm_up_texts,
)
from jaxnlp.text.labels import Labels, number_of_texts
from jaxnlp.text.raw_texts import require_texts, unless_blank
from jaxnlp.typing import Batch, Params


def predict_texts(
    trained: Trained, texts: Sequence[str], pairs: Sequence[str] | None = None, *, part: str
) -> TextOutputs:
    """Predictions of one part.

    Args:
      trained: a model of text tasks.
      texts: N of them, at least one.
      pairs: the second text of each, if the part has pairs.
      part: the name of a part.

    Returns:
      Classification: the probabilities of the classes [N, C]. Paraphrase: the probability of equal meaning [N].
        Similarity: a score on the scale of the labels, such as 0 to 5 [N].

    Raises: ValueError when the model does not have the part, and for another number of pairs than texts.
    """
    labels = trained.processor.labels(part)
    if (pairs is None) != (labels.texts == 1):
        remedy = "remove pairs" if labels.texts == 1 else "give pairs"
        raise ValueError(f"{part} takes {number_of_texts(labels.texts)}; {remedy}")
    if pairs is not None and len(pairs) != len(texts):
        raise ValueError(f"each text needs a second one; number of texts: {len(texts)}, of second texts: {len(pairs)}")
    columns = [texts] if pairs is None else [texts, pairs]
    if not trained.model.config.has_head(labels):  # the cosine of embeddings, with their prompts and their truncation
        first, second = (embed_texts(trained, column) for column in columns)
        cosines = (l2_normalize(first.values) * l2_normalize(second.values)).sum(axis=1)
        values = np.clip(cosines, 0.0, 1.0) * np.float32(labels.highest)
        return TextOutputs(values, [*first.truncated_rows, *second.truncated_rows])
    return outputs_of(trained, columns, _predictor(trained, part))


def warm_up(trained: Trained, *, part: str | None = None) -> None:
    """Compiles the programs of `predict` ahead: of one part, or of all."""
    for name in trained.processor.names if part is None else (part,):
        labels = trained.processor.labels(name)
        if trained.model.config.has_head(labels):
            warm_up_texts(trained, labels.texts, _predictor(trained, name))
        else:
            warm_up_embed(trained)


def _predictor(trained: Trained, part: str) -> Callable[[np.ndarray, np.ndarray], jax.Array]:
    return functools.partial(_predict, trained.model, trained.separate_params, part)


class Prediction(NamedTuple):
    """The prediction of a text or of a pair.

    Attributes:
      label: the name of the class, or a similarity; None for a blank text.
      probability: of that class; nan for a similarity, and for a blank text.
      probabilities: of each class, by name; {} for a similarity, and for a blank text.
    """

    label: Any
    probability: float
    probabilities: Mapping[str, float]


NO_PREDICTION = Prediction(None, float("nan"), {})
"""The prediction of a blank text."""


@one_or_many
def predict(
    trained: Trained, texts: Sequence[str], pairs: Sequence[str] | None = None, *, part: str | None = None
) -> list[Prediction]:
    """The predictions of a part of the model for texts, or pairs of texts. One text gives one prediction.

    A blank text, or a pair with one, has the prediction None.

    Args:
      texts: one text, or a list of N.
      pairs: the second text of each, if the part has pairs.
      part: the name of a part; None = the only part that fits the number of texts.

    Raises: ValueError when no part fits, or several do; and as `predict_texts`.
    """
    if part is None:
        wanted = 1 if pairs is None else 2
        fitting = [name for name, labels in trained.processor.parts if labels.texts == wanted]
        if len(fitting) != 1:
            raise ValueError(
                f"choose a part: {', '.join(fitting) or ', '.join(trained.processor.names)}"
                + ("" if fitting else f"; none of them takes {number_of_texts(wanted)}")
            )
        (part,) = fitting
    labels = trained.processor.labels(part)
    columns = [require_texts(column) for column in ([texts] if pairs is None else [texts, pairs])]
    if len(columns[0]) != len(columns[-1]):
        raise ValueError(
            f"each text needs a second one; number of texts: {len(columns[0])}, of second texts: {len(columns[-1])}"
        )

    def answers(rows: list[tuple[str, ...]]) -> list[Prediction]:
        values = predict_texts(trained, *zip(*rows, strict=True), part=part).values
        return [prediction_of(labels, value) for value in values]

    return unless_blank(list(zip(*columns, strict=True)), answers, NO_PREDICTION)


def prediction_of(labels: Labels, value: np.ndarray) -> Prediction:
    """What a row of `predict_texts` means, [C] or []."""
    if labels.kind == "similarity":
        return Prediction(float(value), float("nan"), {})
    shares = [1.0 - float(value), float(value)] if labels.kind == "paraphrase" else value.tolist()
    name = labels.names[int(most_likely(value, labels))]
    found = dict(zip(labels.names, shares, strict=True))
    return Prediction(name, found[name], found)


def probabilities(output: jax.Array, labels: Labels) -> jax.Array:
    """From a part's outputs, [B, C] or [B], to what `predict_texts` returns, of the same shape."""
    if labels.kind == "classification":
        return jax.nn.softmax(output, axis=-1)
    if labels.kind == "paraphrase":
        return jax.nn.sigmoid(output)
    return jnp.clip(output, 0.0, 1.0) * float(labels.highest)


def most_likely(predicted: np.ndarray, labels: Labels) -> np.ndarray:
    """The predicted labels [N] float32: the most probable class, or the score."""
    if labels.kind == "classification":
        predicted = predicted.argmax(axis=-1)
    elif labels.kind == "paraphrase":
        predicted = predicted > 0.5
    return predicted.astype(np.float32)


def part_predictions(model: Any, part: str) -> Callable[[Params, Batch], jax.Array]:
    """A function of parameters and a batch of the part: what `predict_texts` returns, [B, C] or [B]."""
    labels = dict(model.parts)[part]

    def predict(params: Params, batch: Batch) -> jax.Array:
        arguments = (batch["tokens"], batch["attention_mask"], part)
        return probabilities(model.apply({"params": params}, *arguments, method="predict"), labels)

    return predict


@functools.partial(jax.jit, static_argnums=(0, 2))
def _predict(model: Any, params: Params, part: str, tokens: jax.Array, mask: jax.Array) -> jax.Array:
    return part_predictions(model, part)(params, {"tokens": tokens, "attention_mask": mask})
