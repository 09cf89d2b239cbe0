import functools
import itertools
import types

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxnlp.corpus import Split
from jaxnlp.models import Parameter
from jaxnlp.models.recurrent_lm import RecurrentLMConfig
from jaxnlp.nn.attention import SelfAttention
from jaxnlp.nn.dropout import Dropout
from jaxnlp.ops.gradient_surgery import project_conflicts
from jaxnlp.tasks import Objective, Trained
from jaxnlp.tasks.language_model import LanguageModel, RecurrentLanguageModel
from tests.processors import sized
from train.evaluation.scoring import SplitScoring
from train.optimizer import SGD, AdamW
from train.optimizer.chain import make_optimizer
from train.parallel import make_parallel
from train.step import init_state, train_step

VOCABULARY = 11
STEPS = 20
MODES = ["jit", "pmap"]


class OneAttention(nn.Module):
    """The smallest model with every kind of dropout: of embeddings, of attention weights, of outputs."""

    @nn.compact
    def __call__(self, tokens, *, deterministic=True):
        x = nn.Embed(VOCABULARY, 8)(tokens)
        x = Dropout(0.1)(x, deterministic=deterministic)
        attention = SelfAttention(num_heads=2, attention_dropout_rate=0.2, dropout_rate=0.1, use_bias=False)
        return nn.Dense(VOCABULARY)(x + attention(x, deterministic=deterministic)[0])


def describe(path):
    """What a model's config says of its parameters; in these models kernels are matrices."""
    axes = {"qkv": "D3HK"} if path[-1] == "kernel" else {"qkv": "3HK"}
    letters = axes.get(path[-2], {"kernel": "DF", "bias": "F", "embedding": "VD"}[path[-1]])
    return Parameter(letters, matrix=path[-1] == "kernel")


def random_batches(rows=13, length=8):
    """With unequal numbers of tokens a row, so that a mean over devices must weigh them."""
    generator = np.random.default_rng(0)
    for _ in range(STEPS):
        tokens = generator.integers(VOCABULARY, size=(rows, length + 1)).astype(np.int32)
        mask = np.arange(length) < generator.integers(1, length + 1, size=(rows, 1))
        yield {"tokens": tokens[:, :-1], "targets": tokens[:, 1:], "loss_mask": mask}


def objective_of(model, task=None):
    return (task or LanguageModel()).objective(model, None)


def evaluate(objective, params, batches, layout):
    """The objective's metrics of a split."""
    trained = Trained(LanguageModel(), None, params, types.SimpleNamespace(unit="tokens"))
    split = Split(tuple(batches))
    return SplitScoring(trained, split, "x", training=None, objective=objective, layout=layout, kept={}).sums()


@functools.cache
def parts():
    """Model, optimizer and a function that makes the initial state."""
    model = OneAttention()
    config = AdamW(learning_rate=1e-2, weight_decay=0.1)
    optimizer = make_optimizer(config, total_steps=STEPS, parameter=describe)

    @jax.jit
    def initial_state():
        params = jax.jit(model.init)(jax.random.key(0), jnp.zeros((1, 1), jnp.int32))["params"]
        return init_state(params, optimizer, jax.random.key(1), ema=True)

    return model, optimizer, initial_state


@functools.cache
def train(mode, device_count, accumulation_steps):
    """Parameters and average after 20 steps with dropout, metrics on the way, and how often the step was traced."""
    model, optimizer, initial_state = parts()
    traces = []

    def loss(*arguments):
        traces.append(1)
        return objective_of(model).loss(*arguments)

    layout = make_parallel(mode, jax.devices()[:device_count])
    step = layout.compile_train(
        functools.partial(
            train_step,
            objective=Objective(loss),
            optimizer=optimizer,
            ema_decay=0.9,
            accumulation_steps=accumulation_steps,
        ),
        jax.eval_shape(initial_state),
    )
    state, metrics = layout.initialise(initial_state), []
    for batch in random_batches():
        state, output = step(state, layout.put_batch(batch, accumulation_steps))
        metrics.append(output.metrics)
    state = layout.fetch(state)
    return jax.device_get((state.params, state.ema)), jax.device_get(metrics), len(traces)


def largest_relative_differences(tree, other):
    """Of each array: the largest difference, relative to the array's largest value."""
    pair = jax.device_get((tree, other))
    return jax.tree.map(lambda a, b: float(np.abs(a - b).max() / np.abs(a).max()), *pair)


@pytest.mark.sweep(1)
@pytest.mark.parametrize("accumulation_steps", [1, 3])
@pytest.mark.parametrize("mode", MODES)
def test_eight_devices_take_the_twenty_steps_of_one_with_dropout_on(mode, accumulation_steps):
    expected, expected_metrics, _ = train("jit", 1, accumulation_steps)
    found, found_metrics, _ = train(mode, 8, accumulation_steps)
    for step, (one, eight) in enumerate(zip(expected_metrics, found_metrics, strict=True), 1):
        assert one["loss"][1] == eight["loss"][1]
        np.testing.assert_allclose(eight["loss"][0], one["loss"][0], rtol=1e-5, err_msg=f"step {step}")
        np.testing.assert_allclose(eight["grad_norm"][0], one["grad_norm"][0], rtol=1e-5, err_msg=f"step {step}")
    assert (
        max(jax.tree.leaves(largest_relative_differences(expected, found))) < 2e-5
    )  # twenty steps of AdamW amplify rounding


@pytest.mark.thorough
def test_an_unknown_mode_is_refused_with_those_that_there_are():
    with pytest.raises(
        ValueError, match="parallel must be one of jit, fsdp, tensor, pmap, got 'fsd'; did you mean fsdp"
    ):
        make_parallel("fsd")


@pytest.mark.thorough
def test_accumulation_with_dropout_draws_other_masks_but_counts_the_same_tokens():
    _, whole, _ = train("jit", 1, 1)
    _, cut, _ = train("jit", 1, 3)
    assert [metrics["loss"][1] for metrics in whole] == [metrics["loss"][1] for metrics in cut]
    assert whole[0]["loss"][0] != cut[0]["loss"][0]


@pytest.mark.sweep(1)
@pytest.mark.parametrize("accumulation_steps", [1, 3])
@pytest.mark.parametrize("mode", MODES)
def test_step_is_compiled_once_over_twenty_steps(mode, accumulation_steps):
    assert train(mode, 8, accumulation_steps)[2] == 1


@pytest.mark.sweep(1)
@pytest.mark.parametrize("mode", MODES)
def test_evaluation_on_eight_devices_equals_one(mode, devices):
    model, _, initial_state = parts()
    scores = []
    for name, count in [("jit", 1), (mode, 8)]:
        layout = make_parallel(name, devices[:count])
        params = layout.initialise(initial_state).params
        scores.append(evaluate(objective_of(model), params, random_batches(rows=5), layout)["loss"])
    one, eight = scores
    assert one.count == eight.count
    np.testing.assert_allclose(one.value, eight.value, rtol=1e-6)


@pytest.mark.sweep(1)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("count", [1, 8])
def test_fetched_state_is_the_one_that_was_laid_out(mode, count, devices):
    _, _, initial_state = parts()
    state, layout = initial_state(), make_parallel(mode, devices[:count])
    found = layout.fetch(layout.place(state))
    chex.assert_trees_all_equal(found.replace(key=None), state.replace(key=None))
    np.testing.assert_array_equal(jax.random.key_data(found.key), jax.random.key_data(state.key))


@pytest.mark.sweep(1)
@pytest.mark.parametrize("mode", MODES)
def test_an_initialised_state_equals_the_one_that_is_computed_on_one_device(mode, devices):
    _, _, initial_state = parts()
    layout = make_parallel(mode, devices)
    found, expected = layout.fetch(layout.initialise(initial_state)), initial_state()
    chex.assert_trees_all_close(found.replace(key=None), expected.replace(key=None), rtol=1e-6)


@pytest.mark.parametrize("mode", MODES)
def test_outputs_of_a_padded_batch_come_back_in_order(mode, devices):
    layout = make_parallel(mode, devices)
    run = layout.compile_outputs(lambda params, batch: batch["tokens"] * params)
    batch = next(random_batches(rows=5))
    found = layout.rows_of(run(layout.place(jnp.int32(2)), layout.put_batch(batch)))
    np.testing.assert_array_equal(found[:5], 2 * batch["tokens"])


@functools.cache
def train_carried(mode, device_count):
    """Parameters, final states and losses after reading four batches of 8 rows, each on where the last stopped."""
    model = RecurrentLMConfig(embedding_width=4, widths=(6, 5), weight_dropout_rate=0.3, input_dropout_rate=0.3)
    model = model.build(sized(VOCABULARY))
    objective = objective_of(model, RecurrentLanguageModel())
    config = SGD(learning_rate=0.5, max_grad_norm=None)
    optimizer = make_optimizer(config, total_steps=4, parameter=describe)
    layout = make_parallel(mode, jax.devices()[:device_count])

    def initial_state():
        params = jax.jit(model.init)(jax.random.key(0), jnp.zeros((1, 1), jnp.int32))["params"]
        return init_state(params, optimizer, jax.random.key(1), ema=False, carry=objective.empty_carry(8))

    state, losses = layout.initialise(initial_state), []
    step = functools.partial(train_step, objective=objective, optimizer=optimizer)
    step = layout.compile_train(step, jax.eval_shape(initial_state))
    for number, batch in enumerate(itertools.islice(random_batches(rows=8), 4)):
        state, output = step(state, layout.put_batch(batch | {"reset": np.full(8, number == 0)}))
        losses.append(output.metrics["loss"])
    batches = [b | {"reset": np.full(5, False)} for b in random_batches(rows=5)]
    scores = evaluate(objective, state.params, batches, layout)["loss"]
    state = layout.fetch(state)
    return jax.device_get((state.params, state.carry)), jax.device_get(losses), scores


@pytest.mark.thorough
@pytest.mark.parametrize("mode", MODES)
def test_eight_devices_carry_the_states_of_their_rows(mode):
    expected, expected_losses, expected_score = train_carried("jit", 1)
    found, losses, score = train_carried(mode, 8)
    np.testing.assert_allclose(losses, expected_losses, rtol=1e-5)
    assert max(jax.tree.leaves(largest_relative_differences(expected, found))) < 1e-5
    assert score.count == expected_score.count
    np.testing.assert_allclose(score.value, expected_score.value, rtol=1e-5)


class OneLayer(nn.Module):
    """A word and its neighbour to the left, with dropout."""

    @nn.compact
    def __call__(self, tokens, *, deterministic=True):
        x = nn.Embed(VOCABULARY, 8)(tokens)
        x = Dropout(0.2)(x + jnp.roll(x, 1, axis=1), deterministic=deterministic)
        return nn.Dense(VOCABULARY)(x)


def batches_of_parts():
    """Two parts with opposite targets and other shapes, with unequal numbers of tokens a row."""
    for one, other in zip(random_batches(rows=13, length=8), random_batches(rows=7, length=5), strict=True):
        yield {"one": one, "other": other | {"targets": VOCABULARY - 1 - other["targets"]}}


@functools.cache
def train_together(mode, device_count):
    """Parameters and metrics of five steps with gradient surgery and dropout."""
    model, config = OneLayer(), AdamW(learning_rate=1e-2, weight_decay=0.1)
    optimizer = make_optimizer(config, total_steps=5, parameter=describe)
    layout = make_parallel(mode, jax.devices()[:device_count])
    plain = objective_of(model)
    objective = Objective(plain.loss, combine=lambda g, key: project_conflicts(list(g.values()), key))

    def initial_state():
        params = jax.jit(model.init)(jax.random.key(0), jnp.zeros((1, 1), jnp.int32))["params"]
        return init_state(params, optimizer, jax.random.key(1), ema=False)

    step = functools.partial(train_step, objective=objective, optimizer=optimizer)
    step = layout.compile_train(step, jax.eval_shape(initial_state))
    state, found = layout.initialise(initial_state), []
    for batches in itertools.islice(batches_of_parts(), 5):
        state, output = step(state, layout.put_batch(batches))
        found.append(output.metrics)
    return jax.device_get(layout.fetch(state).params), jax.device_get(found)


@pytest.mark.thorough
@pytest.mark.parametrize("mode", MODES)
def test_eight_devices_train_several_parts_at_once_as_one_does(mode):
    expected, expected_metrics = train_together("jit", 1)
    found, found_metrics = train_together(mode, 8)
    for one, eight in zip(expected_metrics, found_metrics, strict=True):
        assert one["loss"][1] == eight["loss"][1]
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), one, eight)
    assert max(jax.tree.leaves(largest_relative_differences(expected, found))) < 1e-5


@pytest.mark.parametrize("accumulation_steps", [1, 2])
@pytest.mark.parametrize("mode", MODES)
def test_batches_of_several_parts_are_laid_out_each_like_a_single_batch(mode, accumulation_steps, devices):
    layout, batches = make_parallel(mode, devices), next(batches_of_parts())
    found = layout.put_batch(batches, accumulation_steps)
    assert found.keys() == batches.keys()
    for name, part in batches.items():
        chex.assert_trees_all_equal(found[name], layout.put_batch(part, accumulation_steps))
