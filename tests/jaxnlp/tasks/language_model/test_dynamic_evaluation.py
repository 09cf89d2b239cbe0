import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxnlp.corpus import DataError
from jaxnlp.tasks.language_model.dynamic_evaluation import DynamicPerplexity, dynamic_losses
from jaxnlp.tasks.language_model.evaluators import token_losses
from tests.jaxnlp.tasks.language_model.test_evaluators import MODEL, PARAMS, ROWS, Scoring, batches

OPTIONS = DynamicPerplexity(segment_length=4, learning_rate=0.05, decay=0.02, beta=0.9)


@jax.jit
def mean_loss(params, tokens, targets, states):
    read = MODEL.apply({"params": params}, tokens[None], states, method="read")
    scores = jax.nn.log_softmax(MODEL.logits(params, read.hidden)[0], axis=-1)
    return -jnp.take_along_axis(scores, targets[:, None], axis=-1).mean(), read.states


def by_hand(rows, options):
    """The losses of segments of texts, each with the parameters before its own update."""
    params = jax.tree.map(lambda p: np.asarray(p, np.float64), PARAMS)
    squares, losses, updates = jax.tree.map(np.zeros_like, params), [], 0
    for tokens, targets in rows:
        states = MODEL.empty_cache(1)
        for start in range(0, len(tokens), options.segment_length):
            here = slice(start, start + options.segment_length)
            given = jax.tree.map(np.float32, params)
            (loss, states), gradient = jax.value_and_grad(mean_loss, has_aux=True)(
                given, tokens[here], targets[here], states
            )
            losses += [float(loss)] * len(tokens[here])
            updates += 1
            gradient = jax.tree.map(lambda g: np.asarray(g, np.float64), gradient)
            squares = jax.tree.map(lambda s, g: options.beta * s + (1 - options.beta) * np.square(g), squares, gradient)
            params = jax.tree.map(
                lambda w, p, g, s, n=updates: (
                    w
                    - options.learning_rate * g / (np.sqrt(s / (1 - options.beta**n)) + options.epsilon)
                    + options.decay * (np.asarray(p, np.float64) - w)
                ),
                params,
                PARAMS,
                gradient,
                squares,
            )
    return sum(losses), len(losses)


def text_of(given, row):
    tokens, targets, mask = (
        np.concatenate([batch[name][row] for batch in given]) for name in ("tokens", "targets", "loss_mask")
    )
    return tokens[mask], targets[mask]


@pytest.mark.thorough
@pytest.mark.parametrize("joined", [True, False])
def test_each_segment_is_scored_before_the_model_learns_from_it(joined):
    given = batches()
    rows = [text_of(given, row) for row in range(ROWS)]
    if joined:  # the rows are one text
        rows = [tuple(map(np.concatenate, zip(*rows, strict=True)))]
    else:  # each row of each batch is a text
        rows = [text_of([batch], row) for batch in given for row in range(ROWS)]
        given = [{name: value for name, value in batch.items() if name != "reset"} for batch in given]
    expected, count = by_hand(rows, OPTIONS)
    found = dynamic_losses(MODEL, PARAMS, given, OPTIONS)
    assert found.count == count
    np.testing.assert_allclose(found.value, expected / count, rtol=1e-4)


@pytest.mark.thorough
def test_a_model_that_does_not_learn_scores_each_text_as_ever():
    given = [{name: value for name, value in batch.items() if name != "reset"} for batch in batches()]
    still = DynamicPerplexity(segment_length=2, learning_rate=1e-12, decay=0.0)
    loss, count = token_losses(MODEL, PARAMS, given)
    found = dynamic_losses(MODEL, PARAMS, given, still)
    np.testing.assert_allclose((found.value, found.count), (loss / count, count), rtol=1e-5)


@pytest.mark.thorough
def test_a_text_that_repeats_itself_is_learned():
    (first, *_) = batches()
    repeated = {name: np.tile(value, (1, 20)) if value.ndim == 2 else value for name, value in first.items()}
    evaluation = OPTIONS(Scoring(batches=(repeated,)))
    ((name, metric),) = evaluation.metrics.items()
    loss, count = token_losses(MODEL, PARAMS, [repeated])
    assert name in OPTIONS.metrics
    assert metric.value < 0.7 * math.exp(loss / count)
    assert evaluation.remarks["dynamic"]["segment_length"] == 4


def test_a_split_without_text_is_refused():
    with pytest.raises(DataError, match="test has no text to score"):
        OPTIONS(Scoring(examples=("a text",)))


@pytest.mark.parametrize("decay", [1.001, 5.0])
def test_more_than_the_whole_way_back_is_refused(decay):
    with pytest.raises(ValueError, match=r"decay must be in \[0, 1\]"):
        DynamicPerplexity(decay=decay)
