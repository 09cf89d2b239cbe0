"""Dynamic evaluation: a recurrent language model continues to learn from the text that it is scored on."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxnlp.config import Count, Fraction, Positive, Rate
from jaxnlp.corpus import DataError, NumpyBatch
from jaxnlp.metrics import total
from jaxnlp.ops.compiler_options import jit
from jaxnlp.ops.losses import cross_entropy
from jaxnlp.saving.serialization import to_json
from jaxnlp.tasks import Evaluation, Evaluator, Metric, MetricKind, Scoring
from jaxnlp.tasks.language_model.evaluators import perplexity
from jaxnlp.typing import Array, Params, PyTree


@dataclasses.dataclass(frozen=True)
class DynamicPerplexity(Evaluator):
    """Perplexity of a model that learns from each segment of the text after it has scored it.

    With g the gradient of a segment's mean loss, s the running mean of g^2 and w the trained parameters p at first,

        w <- w - learning_rate g / (sqrt(s) + epsilon) + decay (p - w).

    The text is one stream. Choose the options on the validation split.

    Source: Krause et al. 2018. Differs: s is the mean over the text so far, not over the training text, and all
    parameters have the same decay.
    """

    segment_length: Count = 20
    """Number of tokens between two updates."""
    learning_rate: Positive = 1e-4
    """Size of an update of each parameter."""
    decay: Fraction = 1e-3
    """Share of the distance back to the trained parameters, after each update."""
    beta: Rate = 0.999
    """Decay rate of the running mean of squared gradients."""
    epsilon: Positive = 1e-6
    """Epsilon, added to the root."""

    @property
    def metrics(self) -> Mapping[str, MetricKind]:
        return {"dynamic_perplexity": MetricKind("tokens", "choices", "lower")}

    def __call__(self, scoring: Scoring) -> Evaluation:
        if not len(scoring.split.batches):
            raise DataError(f"{scoring.split_name} has no text to score")
        found = dynamic_losses(scoring.trained.model, scoring.whole_params(), scoring.split.batches, self)
        return Evaluation({"dynamic_perplexity": perplexity(found)}, remarks={"dynamic": to_json(self)})


class _Learner(NamedTuple):
    """The state of learning: parameters, the running mean of squared gradients, the number of updates, and the model's
    states."""

    params: Params
    squares: PyTree
    updates: Array
    states: PyTree


def dynamic_losses(model: Any, params: Params, batches: Sequence[NumpyBatch], options: DynamicPerplexity) -> Metric:
    """The mean negative log-likelihood per token of a text, in nats.

    Args:
      model: a `jaxnlp.models.recurrent_lm.RecurrentLM`.
      params: the trained parameters.
      batches: as for `jaxnlp.tasks.language_model.evaluators.token_losses`; with `reset`, each row continues the
        previous one.
      options: of the updates.
    """
    step = jit(_step(model, options), donate_argnums=1)
    squares = jax.tree.map(jnp.zeros_like, params)
    learner = _Learner(jax.tree.map(jnp.copy, params), squares, jnp.zeros((), jnp.int32), model.empty_cache(1))
    losses = []
    for segment in _segments(batches, options.segment_length):
        learner, loss = step(params, learner, segment)
        losses.append({"loss": loss})
    loss, count = total(jax.device_get(losses))["loss"]
    return Metric(float(loss / count), int(count))


def _step(model: Any, options: DynamicPerplexity) -> Callable[..., tuple[_Learner, tuple[Array, Array]]]:
    def losses(params: Params, segment: NumpyBatch, states: PyTree) -> tuple[Array, tuple[Array, Array, PyTree]]:
        mask = segment["loss_mask"]
        read = model.apply(
            {"params": params}, segment["tokens"], states, method="read", lengths=mask.sum(axis=1, dtype=jnp.int32)
        )
        found = cross_entropy(model.logits(params, read.hidden), jnp.asarray(segment["targets"]), jnp.asarray(mask))
        return found.objective / found.count, (found.nll, found.count, read.states)

    def step(trained: Params, learner: _Learner, segment: NumpyBatch) -> tuple[_Learner, tuple[Array, Array]]:
        states = jax.tree.map(lambda s: jnp.where(segment["begins"], jnp.zeros_like(s), s), learner.states)
        gradient, (summed, counted, states) = jax.grad(losses, has_aux=True)(learner.params, segment, states)
        updates = learner.updates + 1
        squares = jax.tree.map(
            lambda s, g: options.beta * s + (1.0 - options.beta) * jnp.square(g), learner.squares, gradient
        )
        correction = 1.0 - options.beta ** updates.astype(jnp.float32)

        def updated(w: Array, p: Array, g: Array, s: Array) -> Array:
            direction = g / (jnp.sqrt(s / correction) + options.epsilon)
            return w - options.learning_rate * direction + options.decay * (p - w)

        params = jax.tree.map(updated, learner.params, trained, gradient, squares)
        return _Learner(params, squares, updates, states), (summed, counted)

    return step


def _segments(batches: Sequence[NumpyBatch], length: int) -> Iterator[NumpyBatch]:
    """The text in segments [1, S] of `tokens`, `targets` and `loss_mask`, and `begins` [], whether a text starts."""
    joined = "reset" in batches[0]
    names = ("tokens", "targets", "loss_mask")
    if joined:  # one text, first all of the first row
        rows = [np.concatenate([batch[name] for batch in batches], axis=1).reshape(1, -1) for name in names]
    else:
        width = max(batch["tokens"].shape[1] for batch in batches)
        rows = [
            np.concatenate([np.pad(batch[name], ((0, 0), (0, width - batch[name].shape[1]))) for batch in batches])
            for name in names
        ]
    for tokens, targets, mask in zip(*rows, strict=True):
        text = {"tokens": tokens[mask], "targets": targets[mask]}
        for start in range(0, len(text["tokens"]), length):
            segment = {name: values[start : start + length] for name, values in text.items()}
            room = (0, length - len(segment["tokens"]))
            filled = np.pad(np.ones(length - room[1], bool), room)
            padded = {name: np.pad(values, room)[None] for name, values in segment.items()}
            yield padded | {"loss_mask": filled[None], "begins": np.asarray(start == 0)}
