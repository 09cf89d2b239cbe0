"""Parameters that are frozen."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxnlp.tasks import Objective
from tests.train.optimizer.classifier_of_parts import DESCRIBE, TASKED, by_path, params_of, stepped
from train.optimizer import SGD, AdamW, Muon
from train.optimizer.chain import (
    clip_by_global_norm,
    current_learning_rate,
    has_weight_decay,
    make_optimizer,
    scale_by_progress,
)
from train.optimizer.partial import leave_frozen, without_gradients
from train.optimizer.schedules import Cosine
from train.run.init_from import begin
from train.run.setup import set_up


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("config", "kept"),
    [
        (AdamW(learning_rate=0.1, weight_decay=0.3), 2),
        (AdamW(learning_rate=0.1), 2),
        (Muon(learning_rate=0.1, weight_decay=0.3), None),
        (SGD(learning_rate=0.1, momentum=0.9, weight_decay=0.3), 1),
        (AdamW(learning_rate=0.1, reference_tokens=1, schedule=Cosine(unit="tokens", end=5)), 2),
    ],
    ids=str,
)
def test_frozen_parameters_keep_their_bits_and_have_no_moments(config, kept):
    before = params_of(TASKED)
    gradients = [jax.tree.map(lambda x, n=n: np.cos(x + n), before) for n in range(3)]
    after, state = stepped(config, before, gradients, frozen=("encoder",))
    for path, value in by_path(before).items():
        assert (by_path(after)[path].tobytes() == value.tobytes()) == (path[0] == "encoder"), path
    np.testing.assert_allclose(current_learning_rate(state), config.rate(jnp.float32(3), total_steps=10))
    heads = {name: part for name, part in before.items() if name != "encoder"}
    assert len(heads) == 3
    _, alone = stepped(config, heads, [{name: gradient[name] for name in heads} for gradient in gradients])
    assert [x.shape for x in jax.tree.leaves(state)] == [x.shape for x in jax.tree.leaves(alone)]
    if kept is not None:
        assert len([x for x in jax.tree.leaves(state) if x.ndim]) == kept * len(jax.tree.leaves(heads))


def test_trained_parameters_move_as_if_there_were_no_frozen_ones():
    config = AdamW(learning_rate=0.1, weight_decay=0.3, max_grad_norm=0.1)
    before = params_of(TASKED)
    heads = {name: part for name, part in before.items() if name != "encoder"}
    gradients = [jax.tree.map(lambda x, n=n: 100.0 * np.cos(x + n), before) for n in range(3)]
    after, _ = stepped(config, before, gradients, frozen=("encoder",))
    expected, _ = stepped(config, heads, [{name: gradient[name] for name in heads} for gradient in gradients])
    chex.assert_trees_all_equal({name: after[name] for name in heads}, expected)


def test_state_without_frozen_parameters_and_layers_is_as_it_always_was():
    config, params = AdamW(weight_decay=0.3), params_of(TASKED)
    schedule = functools.partial(config.rate, total_steps=10)
    plain = optax.chain(
        clip_by_global_norm(1.0),
        optax.scale_by_adam(),
        optax.add_decayed_weights(0.3, mask=functools.partial(has_weight_decay, describe=DESCRIBE)),
        scale_by_progress(schedule, by_tokens=False),
    )
    for optimizer in (
        make_optimizer(config, total_steps=10, parameter=TASKED.parameter),
        make_optimizer(config, total_steps=10, parameter=TASKED.parameter, frozen=TASKED.frozen),
    ):
        chex.assert_trees_all_equal(jax.jit(optimizer.init)(params), jax.jit(plain.init)(params))


def test_an_update_without_parameters_may_leave_frozen_ones_too():
    optimizer = leave_frozen(optax.with_extra_args_support(optax.sgd(0.5)), lambda path: path == ("a",))
    updates, _ = optimizer.update({"a": jnp.ones(2), "b": jnp.ones(1)}, optimizer.init({"a": 0, "b": 0}))
    chex.assert_trees_all_equal(updates, {"a": jnp.zeros(2), "b": jnp.array([-0.5])})


@pytest.mark.thorough
def test_a_run_with_frozen_parameters_is_saved_and_continued(tiny_config, quick_fit, stop_at, tmp_path):
    config = tiny_config(**{"optimizer.frozen": ("tokens",)})
    straight = quick_fit(config, tmp_path / "straight").state
    with stop_at(5):
        assert quick_fit(config, tmp_path / "killed").stopped_by == "SIGTERM"
    killed = quick_fit(config, tmp_path / "killed").state
    chex.assert_trees_all_equal((killed.params, killed.opt_state), (straight.params, straight.opt_state))
    setup = set_up(begin(config))
    first = jax.jit(setup.initial_state)(setup.given).params
    np.testing.assert_array_equal(straight.params["tokens"]["embedding"], first["tokens"]["embedding"])
    assert (straight.params["head"]["kernel"] != first["head"]["kernel"]).all()


def test_a_gradient_of_frozen_parameters_is_0_and_is_not_computed():
    params = {"below": {"kernel": jnp.ones((64, 64))}, "above": {"kernel": jnp.ones((64, 64))}}
    x = jnp.linspace(-1.0, 1.0, 32 * 64).reshape(32, 64)

    def loss(params, batch, key, carry):
        return jnp.square(jnp.tanh(batch @ params["below"]["kernel"]) @ params["above"]["kernel"]).mean(), ({}, carry)

    def compiled(objective):
        return jax.jit(jax.grad(lambda params: objective.loss(params, x, None, ())[0])).lower(params).compile()

    plain = compiled(Objective(loss))
    fixed = compiled(without_gradients(Objective(loss), AdamW(frozen=("below",)).freezes))
    assert not fixed(params)["below"]["kernel"].any()
    np.testing.assert_allclose(fixed(params)["above"]["kernel"], plain(params)["above"]["kernel"], rtol=1e-5)
    assert fixed.cost_analysis()["flops"] < 0.7 * plain.cost_analysis()["flops"]
