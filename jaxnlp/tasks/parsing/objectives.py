"""The losses of parsers: of transitions, or of heads and relations."""

from typing import Any

import jax
import jax.numpy as jnp

from jaxnlp.ops.dependency_trees import allowed_arcs
from jaxnlp.ops.losses import cross_entropy
from jaxnlp.ops.transitions import legal_transitions, node_labels
from jaxnlp.tasks import Objective, forward
from jaxnlp.typing import Array, Batch, Metrics, Params, PRNGKey, PyTree


def transition_objective(model: Any, *, l2: float, label_smoothing: float) -> Objective:
    """The cross-entropy of the oracle's transitions in the configurations of gold trees.

    Args:
      model: a `Parser`.
      l2, label_smoothing: see `Parsing`.
    """
    relations = model.num_relations

    def loss(params: Params, batch: Batch, key: PRNGKey | None, carry: PyTree):
        labels = jax.vmap(lambda nodes, relation_ids: node_labels(nodes, relation_ids, relations))(
            batch["nodes"], batch["relations"]
        )
        read = (batch[name] for name in model.config.reads)
        logits = forward(model, params, key, batch["nodes"], labels, *read)
        legal = legal_transitions(batch["legal"], relations)
        mask = batch["loss_mask"]
        # A finite number: with -inf, the gradients at padding would be NaN.
        allowed = jnp.where(legal, logits, jnp.finfo(logits.dtype).min / 2)
        logprobs = jax.nn.log_softmax(allowed, axis=-1)
        gold = jnp.take_along_axis(logprobs, batch["transitions"][:, :, None], axis=-1)[:, :, 0]
        count = mask.sum(dtype=jnp.float32)
        nll = -jnp.where(mask, gold, 0.0).sum()
        right = ((allowed.argmax(axis=-1) == batch["transitions"]) & mask).sum(dtype=jnp.float32)
        words = batch["word_mask"].sum(dtype=jnp.float32)
        metrics: Metrics = {"loss": (nll, count), "loss_per_word": (nll, words)}
        metrics["transition_accuracy"] = (right, count)
        total = nll
        if key is not None and label_smoothing:
            spread = jnp.where(legal, logprobs, 0.0).sum(axis=-1) / legal.sum(axis=-1)
            spread = -jnp.where(mask, spread, 0.0).sum()
            total = (1.0 - label_smoothing) * nll + label_smoothing * spread
        return _regularised(total, metrics, params, key, l2, smoothed=label_smoothing > 0), (metrics, carry)

    return Objective(loss, progress="loss_per_word")


def graph_objective(model: Any, *, l2: float) -> Objective:
    """The cross-entropy of the gold heads, and of their gold relations; a sum over both, and a mean over words.

    Args: model: a `GraphParser`; l2: see `Parsing`.
    """

    def loss(params: Params, batch: Batch, key: PRNGKey | None, carry: PyTree):
        mask, heads, relations = batch["loss_mask"], batch["heads"], batch["relations"]
        arcs, of_relations = forward(model, params, key, heads, *(batch[name] for name in model.config.reads))
        lengths = mask.sum(axis=1, dtype=jnp.int32)
        known = mask & (relations >= 0)
        nll = cross_entropy(of_relations, relations, known).objective
        nll -= model.config.log_probability(arcs, heads, lengths).sum()
        words = mask.sum(dtype=jnp.float32)
        right = (allowed_arcs(arcs, lengths).argmax(axis=-1) == heads) & mask
        right_relation = (of_relations.argmax(axis=-1) == relations) & known
        metrics: Metrics = {"loss": (nll, words), "head_accuracy": (right.sum(dtype=jnp.float32), words)}
        metrics["relation_accuracy"] = (right_relation.sum(dtype=jnp.float32), known.sum(dtype=jnp.float32))
        return _regularised(nll, metrics, params, key, l2), (metrics, carry)

    return Objective(loss)


def _regularised(
    total: Array, metrics: Metrics, params: Params, key: PRNGKey | None, l2: float, *, smoothed: bool = False
) -> Array:
    """The scalar to minimise, a mean over the count of the loss; it is added to the metrics if it is not the loss."""
    count = metrics["loss"][1]
    scalar = total / jnp.maximum(count, 1.0)
    if key is None:
        return scalar
    if l2:
        scalar += 0.5 * l2 * sum(jnp.square(x).sum() for x in jax.tree.leaves(params))
    if l2 or smoothed:
        metrics["objective"] = (scalar * count, count)
    return scalar
