"""LoRA: matrices move by their factors, which have the gradients and the updates that they have in PEFT."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import peft
import pytest
import torch
from flax.traverse_util import flatten_dict

from jaxnlp.models import Parameter, parameter_shapes
from jaxnlp.models.gpt import GPTConfig
from jaxnlp.saving.serialization import ConfigError
from tests.processors import sized
from tests.random_parameters import random_parameters
from train.optimizer import SGD, AdamW, Muon
from train.optimizer.chain import make_optimizer
from train.optimizer.lora import A, B, Product, adapted, factor_shapes, low_rank, with_factors
from train.optimizer.parameters import describe

SHAPES = {"DF": (4, 6), "OD": (6, 4), "D3HK": (4, 3, 2, 5), "LD2GK": (3, 4, 2, 1, 5), "LFD": (3, 6, 4)}
MODEL = GPTConfig(num_layers=2, num_heads=2, width=4, context_length=4, tie_embeddings=False)


def draw(*shape):
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)


def one_matrix(axes):
    return lambda path: Parameter(axes, matrix=True, dense=path[-1] == "kernel")


@functools.cache
def gpt():
    """Its parameters."""
    return random_parameters(MODEL.build(sized(7)), np.zeros((1, 4), np.int32))


def optimizer(rows=lambda path: None, **changes):
    config = dataclasses.replace(AdamW(lora_rank=2, max_grad_norm=None), **changes)
    return make_optimizer(config, total_steps=9, parameter=MODEL.parameter, frozen=MODEL.frozen, rows=rows)


def updated(optimizer, params, steps=2):
    """Changes of the parameters, and the state, after some steps."""
    state, new = optimizer.init(params), params
    for step in range(steps):
        grads = jax.tree.map(lambda x, step=step: x * (1 + step) + 0.1, params)
        updates, state = jax.jit(optimizer.update)(grads, state, new, progress=jnp.int32(1))
        new = optax.apply_updates(new, updates)
    return flatten_dict(jax.tree.map(lambda a, b: np.asarray(a - b), new, params)), state


@pytest.mark.thorough
@pytest.mark.parametrize("axes", SHAPES)
def test_factors_have_the_gradients_of_autodiff_and_the_matrix_moves_as_their_product(axes):
    table, rate, path = one_matrix(axes), 0.1, ("layer", "kernel")
    transform = low_rank(
        optax.with_extra_args_support(optax.sgd(rate)), adapted(table, ()), table, rank=2, alpha=3.0, seed=0
    )
    params, target = {"layer": {"kernel": draw(*SHAPES[axes])}}, draw(*SHAPES[axes])
    state, product = transform.init(params), Product(axes, 1.5)
    two = {A: state.factors["layer"]["kernel"][A], B: draw(*factor_shapes(axes, SHAPES[axes], 2)[1])}
    state = state._replace(factors={"layer": {"kernel": two}})

    def loss(matrix):
        return jnp.sum((matrix - target) ** 2)

    start = params["layer"]["kernel"] - product(two[A], two[B])
    grads = jax.grad(lambda two: loss(start + product(two[A], two[B])))(two)
    updates, state = transform.update(jax.grad(lambda tree: loss(tree["layer"]["kernel"]))(params), state, params)
    found = state.factors["layer"]["kernel"]
    for name in (A, B):
        np.testing.assert_allclose(found[name], two[name] - rate * grads[name], rtol=1e-4, atol=1e-5)
    moved = params["layer"]["kernel"] + updates["layer"]["kernel"]
    np.testing.assert_allclose(moved, start + product(found[A], found[B]), rtol=1e-4, atol=1e-5)
    assert [*flatten_dict(updates)] == [path]


def test_packed_matrices_and_blocks_have_factors_of_their_own():
    assert factor_shapes("LD3HK", (6, 8, 3, 2, 4), 5) == ((6, 8, 3, 5), (6, 5, 3, 2, 4))
    a, b = (draw(*shape) for shape in factor_shapes("D3HK", (8, 3, 2, 4), 5))
    whole = Product("D3HK", 1.0)(a, b)
    for index in range(3):
        np.testing.assert_allclose(
            whole[:, index].reshape(8, 8), a[:, index] @ b[:, index].reshape(5, 8), rtol=1e-4, atol=1e-5
        )


@pytest.mark.thorough
def test_a_matrix_takes_the_steps_that_it_takes_in_peft():
    torch.manual_seed(0)
    layer, inputs, targets = torch.nn.Linear(6, 4), torch.randn(5, 6), torch.randn(5, 4)
    before = layer.weight.detach().numpy().copy()
    config = peft.LoraConfig(r=2, lora_alpha=8, target_modules=["0"])
    theirs = peft.get_peft_model(torch.nn.Sequential(layer), config)
    factors = theirs.base_model.model[0]
    first = factors.lora_A["default"].weight.detach().numpy().copy()
    training = torch.optim.AdamW(
        [each for each in theirs.parameters() if each.requires_grad], lr=0.05, weight_decay=0.01
    )
    for _ in range(3):
        training.zero_grad()
        torch.nn.functional.mse_loss(theirs(inputs), targets).backward()
        training.step()

    ours = AdamW(
        **{"lora_rank": 2, "lora_alpha": 8.0, "learning_rate": 0.05, "weight_decay": 0.01, "max_grad_norm": None},
        schedule=dataclasses.replace(SGD().schedule.as_kind("constant"), warmup=0),
    )
    transform = make_optimizer(ours, total_steps=3, parameter=one_matrix("DF"))
    params = {"kernel": jnp.asarray(before.T)}
    state = transform.init(params)
    state = state._replace(factors={"kernel": state.factors["kernel"] | {A: jnp.asarray(first.T)}})
    bias = layer.bias.detach().numpy()

    def loss(params):
        return jnp.mean((inputs.numpy() @ params["kernel"] + bias[None] - targets.numpy()) ** 2)

    for _ in range(3):
        updates, state = transform.update(jax.grad(loss)(params), state, params, progress=jnp.int32(1))
        params = optax.apply_updates(params, updates)
    np.testing.assert_allclose(state.factors["kernel"][A].T, factors.lora_A["default"].weight.detach(), atol=1e-5)
    np.testing.assert_allclose(state.factors["kernel"][B].T, factors.lora_B["default"].weight.detach(), atol=1e-5)
    merged = factors.get_base_layer().weight + factors.get_delta_weight("default")
    np.testing.assert_allclose(params["kernel"].T, merged.detach().numpy(), atol=1e-5)


def moving(changes):
    """The parameters that change, by their last two names."""
    return {"/".join(path[-2:]) for path, change in changes.items() if change.any()}


DENSE = {"qkv/kernel", "out/kernel", "up/kernel", "down/kernel"}


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, DENSE | {"head/kernel"}),
        ({"lora_heads": False}, DENSE),
        ({"lora_targets": ("attention",)}, {"qkv/kernel", "out/kernel", "head/kernel"}),
        ({"lora_targets": ("qkv", "up"), "lora_heads": False}, {"qkv/kernel", "up/kernel"}),
    ],
)
def test_only_targets_and_heads_change(fields, expected):
    changes, state = updated(optimizer(**fields), gpt())
    assert moving(changes) == expected
    held = {leaf.size for leaf in jax.tree.leaves(state.optimizer) if leaf.ndim > 1}
    assert max(held) < max(leaf.size for leaf in jax.tree.leaves(gpt()))  # the moments of factors, not of matrices
    if "up/kernel" in expected:
        (change,) = (change for path, change in changes.items() if path[-2:] == ("up", "kernel"))
        assert [*np.linalg.matrix_rank(change, tol=1e-6)] == [2, 2]


def test_rows_of_new_tokens_change_as_in_a_run_that_trains_all_rows():
    last = {"tokens": (slice(5, 7),), "head": (slice(None), slice(5, 7))}
    changes, state = updated(optimizer(lambda path: last.get(path[0]), lora_heads=False), gpt())
    assert moving(changes) == DENSE | {"tokens/embedding", "head/kernel"}
    whole, _ = updated(make_optimizer(AdamW(max_grad_norm=None), total_steps=9, parameter=MODEL.parameter), gpt())
    for path in (("tokens", "embedding"), ("head", "kernel")):
        index, expected = last[path[0]], np.zeros_like(whole[path])
        expected[index] = whole[path][index]
        np.testing.assert_allclose(changes[path], expected, rtol=1e-5, atol=1e-9)
    shapes = [x.shape for path, x in jax.tree_util.tree_leaves_with_path(state.optimizer) if "'tokens'" in str(path)]
    assert shapes == [(2, 4)] * 2  # of both moments
    heads, _ = updated(optimizer(lambda path: last.get(path[0])), gpt())
    assert heads["head", "kernel"].all()


@pytest.mark.thorough
@pytest.mark.parametrize("kind", [Muon, AdamW, SGD])
def test_every_optimizer_trains_factors(kind):
    made = kind(lora_rank=2, lora_heads=False, layer_decay=0.5, weight_decay=0.1)
    changes, _ = updated(make_optimizer(made, total_steps=9, parameter=MODEL.parameter), gpt())
    assert moving(changes) == DENSE
    assert all(np.isfinite(change).all() for change in changes.values())


def test_each_factor_is_described_with_its_axes():
    factors = optimizer().init(gpt()).factors
    described = describe(with_factors(MODEL.parameter), factors)
    found = {path[-3:]: entry.axes for path, entry in flatten_dict(described).items()}
    assert found["qkv", "kernel", A] == "LD3r"
    assert found["qkv", "kernel", B] == "Lr3HK"
    assert found["down", "kernel", A] == "LFr"


def test_the_seed_decides_on_the_first_factors():
    def first(seed):
        made = make_optimizer(AdamW(lora_rank=2), total_steps=9, parameter=MODEL.parameter, seed=seed)
        return flatten_dict(made.init(gpt()).factors)

    found, other = first(0), first(1)
    assert all((found[path] != other[path]).any() for path in found if path[-1] == A)
    assert not any(found[path].any() for path in found if path[-1] == B)
    assert len({found[path].ravel()[0].item() for path in found if path[-1] == A}) == len(DENSE)


def test_what_does_not_apply_is_refused_with_the_names_that_there_are():
    with pytest.raises(ConfigError, match=r"lora_targets must name dense layers .* are down, out, qkv, up$"):
        optimizer(lora_targets=("query",)).init(parameter_shapes(MODEL.build(sized(7)), np.zeros((1, 4), np.int32)))
    with pytest.raises(ValueError, match=r"optimizer\.lora_alpha applies only to LoRA"):
        AdamW(lora_alpha=8.0)
    with pytest.raises(ValueError, match=r"give update\(\) params"):
        optimizer().update(gpt(), optimizer().init(gpt()))
