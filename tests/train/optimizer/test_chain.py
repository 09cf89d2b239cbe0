import dataclasses
import functools
import math
import os
import re
from pathlib import Path

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch

from jaxnlp.models import Parameter
from jaxnlp.models.gpt import GPTConfig
from jaxnlp.saving.serialization import ConfigError
from tests.processors import sized
from train.optimizer import SGD, AdamW, Muon, RMSProp
from train.optimizer.chain import (
    clip_by_global_norm,
    current_learning_rate,
    has_weight_decay,
    make_optimizer,
    scale_by_progress,
)
from train.optimizer.parameters import describe
from train.optimizer.schedules import Constant, Cosine, Noam

SHAPES = {"dense": {"kernel": (4, 3), "bias": (3,)}, "norm": {"scale": (3,)}, "embed": {"embedding": (5, 3)}}
DECAYED = {"kernel"}
STEPS = 6
TABLE = {
    ("dense", "kernel"): Parameter("DF", matrix=True),
    ("dense", "bias"): Parameter("F"),
    ("norm", "scale"): Parameter("D"),
    ("embed", "embedding"): Parameter("VD", "below"),
}


def tree(seed):
    generator = np.random.default_rng(seed)
    return jax.tree.map(
        lambda shape: generator.normal(size=shape).astype(np.float32), SHAPES, is_leaf=lambda x: isinstance(x, tuple)
    )


def gradients():
    """Long and short ones, so that clipping acts on some steps only."""
    return [jax.tree.map(lambda g, s=scale: s * g, tree(10 + n)) for n, scale in enumerate([5, 0.02, 1, 0.01, 3, 0.05])]


def leaves(params):
    """By name: each name occurs once."""
    return {path[-1].key: np.asarray(leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(params)}


def run(config, *, total_steps=STEPS, tokens=7):
    """Parameters and learning rate after each of a few updates."""
    optimizer = make_optimizer(config, total_steps=total_steps, parameter=TABLE.__getitem__)
    params = tree(0)
    state = optimizer.init(params)
    update = jax.jit(optimizer.update)
    history = []
    for gradient in gradients():
        updates, state = update(gradient, state, params, progress=jnp.int32(tokens))
        params = jax.tree.map(np.add, params, updates)
        history.append((leaves(params), float(current_learning_rate(state))))
    return history


def rates(config, progress, *, total_steps):
    """The schedule's values at each progress."""
    schedule = jax.jit(functools.partial(config.rate, total_steps=total_steps))
    return [float(schedule(jnp.float32(x))) for x in progress]


def cosine_rate(progress, peak, warmup, final, floor):
    if progress < warmup:
        return peak * progress / warmup
    if progress >= final:
        return peak * floor
    return peak * (floor + (1 - floor) * (1 + math.cos(math.pi * (progress - warmup) / (final - warmup))) / 2)


@pytest.mark.parametrize("max_grad_norm", [1.0, None])
@pytest.mark.parametrize("weight_decay", [0.0, 0.3])
def test_updates_equal_a_numpy_loop(max_grad_norm, weight_decay):
    """Kingma and Ba 2015, algorithm 1; Loshchilov and Hutter 2019, algorithm 2, with the rate in the decay too."""
    config = AdamW(
        learning_rate=0.1,
        beta1=0.8,
        beta2=0.95,
        epsilon=1e-6,
        weight_decay=weight_decay,
        max_grad_norm=max_grad_norm,
    )
    params = {name: x.astype(np.float64) for name, x in leaves(tree(0)).items()}
    mean, square = ({name: np.zeros_like(x) for name, x in params.items()} for _ in range(2))
    for step, (gradient, (found, _)) in enumerate(zip(map(leaves, gradients()), run(config), strict=True), 1):
        norm = math.sqrt(sum((g.astype(np.float64) ** 2).sum() for g in gradient.values()))
        scale = 1.0 if max_grad_norm is None or norm <= max_grad_norm else max_grad_norm / norm
        rate = cosine_rate(step, 0.1, 0, STEPS, 0.1)
        for name, g in gradient.items():
            mean[name] = 0.8 * mean[name] + 0.2 * scale * g
            square[name] = 0.95 * square[name] + 0.05 * (scale * g) ** 2
            direction = mean[name] / (1 - 0.8**step) / (np.sqrt(square[name] / (1 - 0.95**step)) + 1e-6)
            shrink = weight_decay * params[name] if name in DECAYED else 0.0
            params[name] = params[name] - rate * (direction + shrink)
            np.testing.assert_allclose(found[name], params[name], rtol=2e-5, atol=2e-6, err_msg=f"{name}, step {step}")


@pytest.mark.parametrize("weight_decay", [0.3, 0.0])
def test_updates_equal_torch_with_clipping_and_schedule(weight_decay):
    schedule = Cosine(warmup=2)
    config = AdamW(learning_rate=0.1, beta2=0.99, weight_decay=weight_decay, max_grad_norm=0.5, schedule=schedule)
    params = {key: torch.nn.Parameter(torch.tensor(x)) for key, x in leaves(tree(0)).items()}
    optimizer = torch.optim.AdamW(
        [
            {"params": [x for key, x in params.items() if key in DECAYED], "weight_decay": weight_decay},
            {"params": [x for key, x in params.items() if key not in DECAYED], "weight_decay": 0.0},
        ],
        betas=(0.9, 0.99),
    )
    for step, (gradient, (found, rate)) in enumerate(zip(map(leaves, gradients()), run(config), strict=True), 1):
        for key, g in gradient.items():
            params[key].grad = torch.tensor(g)
        torch.nn.utils.clip_grad_norm_(params.values(), 0.5)
        for group in optimizer.param_groups:
            group["lr"] = cosine_rate(step, 0.1, 2, STEPS, 0.1)
        optimizer.step()
        np.testing.assert_allclose(rate, optimizer.param_groups[0]["lr"], rtol=1e-6)
        for key, x in params.items():
            np.testing.assert_allclose(found[key], x.detach(), rtol=2e-5, atol=2e-6, err_msg=f"{key}, step {step}")


@pytest.mark.realdata
def test_adamw_is_that_of_cs224n():
    """The default project's check of an optimizer: a linear layer after 1,000 steps of one example each."""
    torch.manual_seed(0)
    generator, params = np.random.default_rng(0), {"kernel": torch.nn.Linear(3, 2, bias=False).weight.detach().numpy()}
    config = AdamW(weight_decay=1e-4, epsilon=1e-6, max_grad_norm=None, schedule=Constant())
    optimizer = make_optimizer(config, total_steps=1_000, parameter=lambda path: Parameter("DC", matrix=True))

    def loss(params, x):
        return jnp.square(params["kernel"] @ x - jnp.stack([x[0] + x[1], -x[2]])).sum()

    @jax.jit
    def train(params, inputs):
        def step(carry, x):
            params, state = carry
            updates, state = optimizer.update(jax.grad(loss)(params, x), state, params, progress=jnp.int32(1))
            return (optax.apply_updates(params, updates), state), None

        return jax.lax.scan(step, (params, optimizer.init(params)), inputs)[0][0]

    found = train(params, generator.uniform(size=(1_000, 3)).astype(np.float32))["kernel"]
    expected = np.load(Path(os.environ["JAXNLP_DATA"]) / "cs224n_minbert" / "optimizer_test.npy")
    np.testing.assert_allclose(found, expected, atol=2e-5)


@pytest.mark.parametrize("longest", [0.1, 3.0, 1e9])
def test_clipping_is_that_of_optax(longest):
    updates = {"a": np.array([3.0, -4.0], np.float32), "b": np.array([[12.0]], jnp.bfloat16)}
    ours, theirs = clip_by_global_norm(longest), optax.clip_by_global_norm(longest)
    found, expected = (jax.jit(clip.update)(updates, clip.init(updates))[0] for clip in (ours, theirs))
    chex.assert_trees_all_close(found, expected, rtol=1e-2)
    np.testing.assert_allclose(found["a"], expected["a"], rtol=1e-6)
    assert found["b"].dtype == jnp.bfloat16


def test_clipping_keeps_zeros():
    clip = clip_by_global_norm(1.0)
    np.testing.assert_array_equal(jax.jit(clip.update)({"a": np.zeros(3, np.float32)}, clip.init({}))[0]["a"], 0.0)


def test_short_gradients_are_not_lengthened_by_clipping():
    short = AdamW(max_grad_norm=1e6)
    for (clipped, _), (free, _) in zip(run(short), run(AdamW(max_grad_norm=None)), strict=True):
        for name, x in clipped.items():
            np.testing.assert_array_equal(x, free[name])


@pytest.mark.sweep(1)
@pytest.mark.parametrize("tie_embeddings", [True, False])
def test_weight_decay_shrinks_dense_kernels_and_nothing_else_of_a_gpt(tie_embeddings):
    model = GPTConfig(num_layers=2, num_heads=2, width=4, context_length=4, tie_embeddings=tie_embeddings)
    shapes = jax.eval_shape(model.build(sized(5)).init, jax.random.key(0), jnp.zeros((1, 1), jnp.int32))["params"]
    params = jax.tree.map(lambda s: np.ones(s.shape, s.dtype), shapes)
    config = AdamW(learning_rate=0.5, weight_decay=0.5, schedule=Constant())
    optimizer = make_optimizer(config, total_steps=1, parameter=model.parameter)
    zero = jax.tree.map(np.zeros_like, params)
    updates = jax.jit(lambda: optimizer.update(zero, optimizer.init(params), params, progress=jnp.int32(1))[0])()
    changes = {jax.tree_util.keystr(path): set(np.ravel(u)) for path, u in jax.tree_util.tree_leaves_with_path(updates)}
    shrunk = {path for path, change in changes.items() if change != {0.0}}
    assert all(changes[path] == {-0.25} for path in shrunk)
    assert shrunk == {
        *([] if tie_embeddings else ["['head']['kernel']"]),
        "['blocks']['attention']['qkv']['kernel']",
        "['blocks']['attention']['out']['kernel']",
        "['blocks']['feed_forward']['up']['kernel']",
        "['blocks']['feed_forward']['down']['kernel']",
    }


def test_weight_decay_applies_to_what_the_model_calls_a_matrix_whatever_its_name():
    table = {("encoder", "w"): Parameter("DF", matrix=True), ("conv", "kernel"): Parameter("DF")}
    params = {"encoder": {"w": np.ones((2, 3))}, "conv": {"kernel": np.ones((2, 3))}}
    assert has_weight_decay(params, functools.partial(describe, table.__getitem__)) == {
        "encoder": {"w": True},
        "conv": {"kernel": False},
    }


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({}, "the model's table of parameters has no entry for dense/kernel: ('dense', 'kernel')"),
        (
            {("dense", "kernel"): Parameter("LDF", matrix=True)},
            "gives dense/kernel the 3 axes 'LDF', but its shape is (4, 3)",
        ),
    ],
)
@pytest.mark.parametrize("config", [AdamW(weight_decay=0.1), Muon()])
def test_parameters_that_the_models_table_does_not_have_are_refused(config, table, message):
    optimizer = make_optimizer(config, total_steps=1, parameter=table.__getitem__)
    params = {"dense": {"kernel": np.ones((4, 3), np.float32)}}

    def update(params):
        return optimizer.update(params, optimizer.init(params), params, progress=jnp.int32(1))

    with pytest.raises(ConfigError, match=re.escape(message)):
        jax.eval_shape(update, params)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (AdamW(learning_rate=0.5), lambda n: cosine_rate(n, 0.5, 0, 40, 0.1)),
        (
            AdamW(learning_rate=2.0, schedule=Cosine(warmup=10, min_lr_ratio=0.0)),
            lambda n: cosine_rate(n, 2.0, 10, 40, 0),
        ),
        (
            AdamW(learning_rate=1.0, schedule=Cosine(warmup=5, end=20, min_lr_ratio=0.25)),
            lambda n: cosine_rate(n, 1.0, 5, 20, 0.25),
        ),
        (
            AdamW(learning_rate=1.0, schedule=Constant(warmup=10)),
            lambda n: min(1.0, n / 10),
        ),
        (AdamW(learning_rate=1.0, schedule=Cosine(warmup=100)), lambda n: n / 100),
        (  # the published formula, for D = 64
            AdamW(learning_rate=(64 * 10) ** -0.5, schedule=Noam(warmup=10)),
            lambda n: 64**-0.5 * min(n**-0.5, n * 10**-1.5),
        ),
    ],
    ids=["cosine", "warmup", "decay ends early", "constant", "warmup outlasts the run", "noam"],
)
def test_schedule_follows_its_formula(config, expected):
    steps = range(1, 50 if config.schedule.warmup < 40 else 41)
    found = rates(config, steps, total_steps=40)
    np.testing.assert_allclose(found, [expected(n) for n in steps], rtol=1e-5, atol=1e-7)


def test_schedule_passes_its_landmarks():
    config = AdamW(learning_rate=0.8, schedule=Cosine(warmup=10, min_lr_ratio=0.5))
    first, middle_of_warmup, peak, halfway, end, after = rates(config, [1, 5, 10, 25, 40, 1000], total_steps=40)
    np.testing.assert_allclose([first, middle_of_warmup, peak], [0.08, 0.4, 0.8], rtol=1e-6)
    np.testing.assert_allclose([halfway, end, after], [0.6, 0.4, 0.4], rtol=1e-6)


def test_token_schedule_with_constant_tokens_a_step_equals_the_step_schedule():
    by_steps = AdamW(learning_rate=0.1, schedule=Cosine(warmup=2, end=5))
    by_tokens = AdamW(learning_rate=0.1, schedule=Cosine(unit="tokens", warmup=2 * 37, end=5 * 37))
    for (params, rate), (token_params, token_rate) in zip(run(by_steps), run(by_tokens, tokens=37), strict=True):
        np.testing.assert_allclose(rate, token_rate, rtol=1e-6)
        for name, x in params.items():
            np.testing.assert_allclose(x, token_params[name], rtol=1e-5)


def test_token_schedule_ignores_the_length_of_the_run():
    config = AdamW(learning_rate=0.1, schedule=Cosine(unit="tokens", end=100))
    assert [rate for _, rate in run(config, total_steps=3)] == [rate for _, rate in run(config, total_steps=1000)]


@pytest.mark.parametrize(("tokens", "updates"), [(2**24 + 1, 5), (2**20 - 1, 40), (1, 3), (2**30 + 12345, 9)], ids=str)
def test_tokens_are_counted_exactly_beyond_what_a_word_holds(tokens, updates):
    transform = scale_by_progress(lambda progress: progress, by_tokens=True)
    state, counted = transform.init({}), 0
    update = jax.jit(lambda state, tokens: transform.update({}, state, progress=tokens)[1])
    for _ in range(updates):
        state, counted = update(state, jnp.float32(tokens)), counted + int(np.float32(tokens))
        assert int(state.high) * 2**20 + int(state.low) == counted
        assert 0 <= int(state.low) < 2**20
        np.testing.assert_allclose(state.learning_rate, counted, rtol=1e-6)


@pytest.mark.parametrize("final", [2_000_000_000, 260_000_000_000])
def test_schedules_of_billions_of_tokens_reach_their_floor(final):
    config = AdamW(learning_rate=1.0, schedule=Cosine(unit="tokens", warmup=final // 10, end=final))
    progress = [final // 20, final // 10, final // 2, final, 2 * final]
    expected = [cosine_rate(n, 1.0, final // 10, final, 0.1) for n in progress]
    np.testing.assert_allclose(rates(config, progress, total_steps=1), expected, rtol=1e-5)


def test_steps_are_counted_whatever_the_tokens():
    optimizer = scale_by_progress(lambda progress: progress, by_tokens=False)
    state = optimizer.init({})
    update = jax.jit(lambda state: optimizer.update({}, state, progress=jnp.float32(1000))[1])
    for number in range(1, 4):
        state = update(state)
        assert float(state.learning_rate) == number


def test_zero_progress_has_rate_zero_before_a_warmup():
    for warmup, expected in ((2, 0.0), (0, 1.0)):
        assert rates(AdamW(learning_rate=1.0, schedule=Cosine(warmup=warmup)), [0], total_steps=10) == [expected]


def test_constant_schedule_may_warm_up_over_tokens():
    config = AdamW(learning_rate=1.0, schedule=Constant(unit="tokens", warmup=14))
    np.testing.assert_allclose([rate for _, rate in run(config, tokens=7)][:3], [0.5, 1.0, 1.0])


def test_update_without_progress_is_refused():
    config = AdamW()
    optimizer = make_optimizer(config, total_steps=1, parameter=TABLE.__getitem__)
    with pytest.raises(TypeError, match="progress"):
        jax.eval_shape(lambda params: optimizer.update(params, optimizer.init(params), params), tree(0))


def run_optimizer(config, gradients, tokens):
    """Parameters, from 0, after each update."""
    optimizer = make_optimizer(config, total_steps=100, parameter=TABLE.__getitem__)
    params = {"kernel": np.zeros(2, np.float32)}
    state, path, update = optimizer.init(params), [], jax.jit(optimizer.update)
    for gradient, count in zip(gradients, tokens, strict=True):
        updates, state = update({"kernel": gradient}, state, params, progress=np.int32(count))
        params = jax.tree.map(np.add, params, updates)
        path.append(params["kernel"])
    return path, state


def test_rmsprop_equals_torch():
    gradients = [np.array([1.0, -2.0], np.float32), np.array([0.5, 0.01], np.float32), np.zeros(2, np.float32)]
    theirs = torch.nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.RMSprop([theirs], lr=0.1, alpha=0.9, eps=1e-3)
    config = RMSProp(learning_rate=0.1, beta2=0.9, epsilon=1e-3, max_grad_norm=None, schedule=Constant())
    found, _ = run_optimizer(config, gradients, [1] * 3)
    for one, gradient in zip(found, gradients, strict=True):
        theirs.grad = torch.tensor(gradient)
        optimizer.step()
        np.testing.assert_allclose(one, theirs.detach(), rtol=1e-5)


def test_sgd_follows_the_gradient_and_its_momentum():
    gradients = [np.array([1.0, -2.0], np.float32), np.array([0.5, 0.5], np.float32)]
    config = SGD(learning_rate=0.1, max_grad_norm=None, schedule=Constant())
    (first, second), _ = run_optimizer(config, gradients, [1, 1])
    np.testing.assert_allclose(first, [-0.1, 0.2], rtol=1e-6)
    np.testing.assert_allclose(second, [-0.15, 0.15], rtol=1e-6)
    (_, second), _ = run_optimizer(dataclasses.replace(config, momentum=0.5), gradients, [1, 1])
    np.testing.assert_allclose(second, [-0.1 - 0.1 * (0.5 + 0.5), 0.2 - 0.1 * (0.5 - 1.0)], rtol=1e-6)


def test_rate_follows_the_number_of_tokens_where_there_is_a_reference():
    config = SGD(learning_rate=0.1, max_grad_norm=None, reference_tokens=10, schedule=Constant())
    (first, second), state = run_optimizer(config, [np.ones(2, np.float32)] * 2, [10, 5])
    np.testing.assert_allclose(first, -0.1, rtol=1e-6)
    np.testing.assert_allclose(second - first, -0.05, rtol=1e-6)
    np.testing.assert_allclose(current_learning_rate(state), 0.05, rtol=1e-6)
    with pytest.raises(ValueError, match=r"optimizer\.reference_tokens must be at least 1, got 0"):
        AdamW(reference_tokens=0)


HEADED = TABLE | {
    ("head", "kernel"): Parameter("DC", matrix=True, head=True),
    ("head", "bias"): Parameter("C", head=True),
}


def after_each_update(config, kernel, gradients):
    """Parameters after an update with each gradient of the output layer's kernel, which is [4, 3]."""
    optimizer = make_optimizer(config, total_steps=9, parameter=HEADED.__getitem__)
    params = tree(0) | {"head": {"kernel": kernel, "bias": np.full(3, 5.0, np.float32)}}
    state, update, history = optimizer.init(params), jax.jit(optimizer.update), []
    for number, gradient in enumerate(gradients):
        grads = tree(number + 1) | {"head": {"kernel": gradient, "bias": np.ones(3, np.float32)}}
        updates, state = update(grads, state, params, progress=np.int32(1))
        params = jax.tree.map(np.add, params, updates)
        history.append(params)
    return history


def test_output_weights_beyond_the_maximum_norm_are_rescaled_after_the_update_and_nothing_else_changes():
    kernel = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    kernel *= np.array([[0.1, 2.9, 3.5]], np.float32) / np.linalg.norm(kernel, axis=0, keepdims=True)
    # The first class stays within the bound, the second passes it by the update, the third was beyond it before.
    config = SGD(learning_rate=0.5, max_grad_norm=None, schedule=Constant())
    (free,) = after_each_update(config, kernel, [-kernel])
    (bounded,) = after_each_update(dataclasses.replace(config, head_max_norm=3.0), kernel, [-kernel])
    norms = np.linalg.norm(free["head"]["kernel"], axis=0)
    np.testing.assert_allclose(norms, [0.15, 4.35, 5.25], rtol=1e-5)
    found, expected = bounded["head"].pop("kernel"), free["head"].pop("kernel")
    np.testing.assert_array_equal(found[:, 0], expected[:, 0])
    np.testing.assert_allclose(found[:, 1:], 3.0 * expected[:, 1:] / norms[None, 1:], rtol=1e-5)
    chex.assert_trees_all_equal(bounded, free)


def test_output_weights_never_exceed_the_maximum_norm():
    config = AdamW(learning_rate=0.3, weight_decay=0.1, head_max_norm=0.7, schedule=Constant())
    kernel = tree(0)["dense"]["kernel"]
    gradients = [leaves(tree(20 + number))["kernel"] for number in range(4)]
    for params in after_each_update(config, kernel, gradients):
        norms = np.linalg.norm(params["head"]["kernel"], axis=0)
        assert norms.max() < 0.7 * (1 + 1e-5)
    np.testing.assert_allclose(norms.max(), 0.7, rtol=1e-5)


def test_a_maximum_norm_of_output_weights_is_refused_where_none_are_trained():
    config = AdamW(head_max_norm=3.0)
    ones = functools.partial(np.ones, dtype=np.float32)
    params = {"head": {"kernel": ones((4, 3)), "bias": ones(3)}, "dense": {"kernel": ones((4, 3))}}
    message = "optimizer.head_max_norm needs a model with a separate, trained output layer"
    frozen = make_optimizer(config, total_steps=1, parameter=HEADED.__getitem__, frozen=lambda path: path[0] == "head")
    with pytest.raises(ConfigError, match=message):
        frozen.init(params)
    with pytest.raises(ConfigError, match=message):
        make_optimizer(config, total_steps=1, parameter=TABLE.__getitem__).init({"dense": params["dense"]})
