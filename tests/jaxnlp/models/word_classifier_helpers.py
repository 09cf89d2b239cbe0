"""Texts, parameters and checks that the tests of classifiers with word vectors share."""

import dataclasses
import types

import jax
import jax.numpy as jnp
import numpy as np
import torch

from jaxnlp.models import parameter_shapes

VOCABULARY, WIDTH, OUTPUTS = 11, 4, 3
WORDS = ("[PAD]", *"abcdefghij")
PROCESSOR = types.SimpleNamespace(vocabulary_size=VOCABULARY, outputs=OUTPUTS, words=WORDS)
LENGTHS = (6, 3, 1)
TOKENS = np.random.default_rng(0).integers(1, 9, (3, 6)).astype(np.int32)  # also at padding; words 9 and 10 are unused
MASK = np.arange(6)[None] < np.array(LENGTHS)[:, None]
UPSTREAM = np.random.default_rng(1).normal(size=(3, OUTPUTS)).astype(np.float32)


def with_random_params(config):
    """A model, and parameters that are larger than initial ones, so that all of them count."""
    model = config.build(PROCESSOR)
    shapes = parameter_shapes(model, *map(zeros_like, config.inputs(PROCESSOR)))
    draw = np.random.default_rng(2)
    return model, jax.tree.map(lambda x: draw.normal(scale=0.5, size=x.shape).astype(np.float32), shapes)


def zeros_like(shape):
    return jnp.zeros(shape.shape, shape.dtype)


def logits_and_gradients(model):
    """params, tokens, mask -> logits, and the gradients of the parameters for UPSTREAM; compiled once."""

    @jax.jit
    def run(params, tokens, mask):
        logits, pull = jax.vjp(lambda params: model.apply({"params": params}, tokens, mask), params)
        return logits, pull(UPSTREAM)[0]

    return lambda params, tokens=TOKENS, mask=MASK: jax.device_get(run(params, tokens, mask))


def assert_equals_pytorch(config, features_of):
    """Logits and gradients are those of PyTorch, where each text is read separately, without padding.

    Args:
      config: the model's.
      features_of: PyTorch's parameters by path, word vectors [T, D] -> features [E].
    """
    model, params = with_random_params(config)
    theirs = jax.tree.map(lambda x: torch.tensor(x, requires_grad=True), params)

    def logits_of(text):
        x = theirs["tokens"]["embedding"][text]
        if "static_tokens" in theirs:
            x = torch.cat([x, theirs["static_tokens"]["embedding"].detach()[text]], dim=-1)
        return features_of(theirs, x) @ theirs["head"]["kernel"] + theirs["head"]["bias"]

    texts = [torch.tensor(row[:length]).long() for row, length in zip(TOKENS, LENGTHS, strict=True)]
    expected = torch.stack(list(map(logits_of, texts)))
    expected.backward(torch.tensor(UPSTREAM))
    logits, gradients = logits_and_gradients(model)(params)
    np.testing.assert_allclose(logits, expected.detach().numpy(), atol=1e-5)

    def compare(path, found, leaf):
        name = jax.tree_util.keystr(path)
        zeros = np.zeros(found.shape)
        np.testing.assert_allclose(found, zeros if leaf.grad is None else leaf.grad.numpy(), atol=1e-5, err_msg=name)
        assert ("static" in name) == (np.abs(found).max() == 0.0), name

    jax.tree_util.tree_map_with_path(compare, gradients, theirs)
    return model, params, logits


def assert_padding_changes_nothing(model, params):
    """Neither what the padding holds nor how much there is of it; and words in it have no gradient."""
    run = logits_and_gradients(model)
    logits, gradients = run(params)
    other = np.where(MASK, TOKENS, 9)
    found, changed = run(params, other)
    np.testing.assert_array_equal(found, logits)
    jax.tree.map(np.testing.assert_array_equal, changed, gradients)
    np.testing.assert_array_equal(changed["tokens"]["embedding"][9], 0.0)
    broken = np.where(MASK, TOKENS, VOCABULARY)  # outside the vocabulary: NaN
    jax.tree.map(np.testing.assert_array_equal, run(params, broken), (logits, gradients))
    longer = [np.pad(x, ((0, 0), (0, 3))) for x in (TOKENS, MASK)]
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), run(params, *longer), (logits, gradients))
    none, of_none = run(params, TOKENS, np.zeros_like(MASK))  # texts without words
    np.testing.assert_allclose(none, np.broadcast_to(params["head"]["bias"], none.shape), atol=1e-6)
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(of_none))


def assert_initial_loss_is_that_of_chance(config):
    """The mean of -log p of each class is near log C."""
    model = config.build(PROCESSOR)

    @jax.jit
    def initial():
        params = model.init(jax.random.key(0), TOKENS, MASK)["params"]
        return jax.nn.log_softmax(model.apply({"params": params}, TOKENS, MASK))

    np.testing.assert_allclose(-np.asarray(initial()).mean(), np.log(OUTPUTS), atol=0.05)


def assert_changes_only_training(config, rate):
    """A rate of dropout changes what training computes, differently with each key, and not what is predicted."""
    model, params = with_random_params(dataclasses.replace(config, **{rate: 0.5}))
    plain = config.build(PROCESSOR)

    @jax.jit
    def run(params, keys):
        read = {"params": params}
        trained = [model.apply(read, TOKENS, MASK, deterministic=False, rngs={"dropout": key}) for key in keys]
        return *trained, model.apply(read, TOKENS, MASK), plain.apply(read, TOKENS, MASK)

    keys = tuple(jax.random.key(seed) for seed in (0, 1))
    first, second, evaluated, without = jax.device_get(run(params, keys))
    np.testing.assert_array_equal(evaluated, without)
    assert np.abs(first - evaluated).max() > 1e-3
    assert np.abs(first - second).max() > 1e-3
