"""Losses of a matrix product, in chunks, compared with those of the whole logits."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxnlp.ops.devices import compile_for
from jaxnlp.ops.losses import chunk_length, cross_entropy, linear_cross_entropy
from tests.jaxnlp.ops.losses_helpers import (
    BIAS,
    MATRIX,
    STATIC,
    TOKEN_TARGETS,
    TOKEN_WEIGHTS,
    TOKENS,
    compiled_linear_loss,
    narrow,
)


@functools.partial(jax.jit, static_argnames=STATIC)
def linear_sum_and_gradients(x, w, b, targets, loss_mask=None, **settings):
    def loss(x, w, b):
        return linear_cross_entropy(x, w, b, targets, loss_mask, **settings)[0]

    return jax.value_and_grad(loss, argnums=(0, 1, 2))(x, w, b)


@functools.partial(jax.jit, static_argnames=STATIC)
def plain_sum_and_gradients(x, w, b, targets, loss_mask=None, **settings):
    def loss(x, w, b):
        logits = x @ w if b is None else x @ w + b[None]
        return cross_entropy(logits, targets, loss_mask, **settings)[0]

    return jax.value_and_grad(loss, argnums=(0, 1, 2))(x, w, b)


def assert_near(found, expected, tolerance):
    """The largest difference in each array, next to its largest element."""
    for ours, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_allclose(ours, theirs, rtol=0.0, atol=tolerance * np.abs(theirs).max(initial=0.0))


# 12 tokens: chunks that divide them, that leave a rest, and longer than all.
@pytest.mark.thorough
@pytest.mark.parametrize("chunk", [1, 4, 5, 12, 100])
def test_chunks_of_any_length_give_the_loss_and_gradients_of_the_whole_logits(chunk):
    settings = {"label_smoothing": 0.1, "z_loss": 0.05}
    with jax.enable_x64(True):
        arguments = (TOKENS, MATRIX, BIAS, TOKEN_TARGETS, TOKEN_WEIGHTS)
        found = linear_sum_and_gradients(*arguments, chunk=chunk, **settings)
        assert_near(found, plain_sum_and_gradients(*arguments, **settings), 1e-10)
        # Without a gradient another program computes the loss.
        loss, _, count = compiled_linear_loss(*arguments, chunk=chunk, **settings)
        assert (loss.dtype, count.dtype) == (np.float64, np.float64)
        np.testing.assert_allclose(loss, found[0], rtol=1e-12)
        np.testing.assert_allclose(count, TOKEN_WEIGHTS.sum(), rtol=1e-12)


@pytest.mark.sweep(1)
@pytest.mark.parametrize(
    ("bias", "loss_mask", "settings"),
    [
        (BIAS, None, {}),
        (None, None, {}),
        (BIAS, TOKEN_WEIGHTS > 0.0, {}),
        (None, TOKEN_WEIGHTS, {}),
        (BIAS, TOKEN_WEIGHTS - 0.5, {"label_smoothing": 0.1, "z_loss": 0.1}),
        (BIAS, None, {"label_smoothing": 0.3}),
        (None, TOKEN_WEIGHTS > 0.0, {"z_loss": 0.2}),
    ],
    ids=[
        "plain",
        "no bias",
        "bool mask",
        "no bias, weights",
        "weights of both signs",
        "label smoothing",
        "no bias, bool mask, z-loss",
    ],
)
def test_loss_by_chunks_equals_that_of_the_whole_logits(bias, loss_mask, settings):
    with jax.enable_x64(True):
        arguments = (TOKENS, MATRIX, bias, TOKEN_TARGETS, loss_mask)
        found = linear_sum_and_gradients(*arguments, chunk=5, **settings)
        assert_near(found, plain_sum_and_gradients(*arguments, **settings), 1e-10)
        count = compiled_linear_loss(*arguments, chunk=5, **settings).count
        np.testing.assert_allclose(count, 12 if loss_mask is None else loss_mask.sum(), rtol=1e-12)


@pytest.mark.sweep(1)
@pytest.mark.parametrize(
    ("bias", "targets"),
    [(BIAS, TOKEN_TARGETS), (None, TOKEN_TARGETS), (BIAS, np.where(TOKEN_WEIGHTS > 0.0, TOKEN_TARGETS, 100))],
    ids=["bias", "no bias", "masked targets in the padding"],
)
def test_vocabularies_that_are_padded_for_accelerators_give_the_loss_and_gradients_of_their_own_words(bias, targets):
    with jax.enable_x64(True):
        arguments = (TOKENS, MATRIX, bias, targets, TOKEN_WEIGHTS)
        settings = {"label_smoothing": 0.1, "z_loss": 0.05}
        with compile_for("gpu"):
            program = linear_sum_and_gradients.lower(*arguments, chunk=5, **settings)
        assert "tensor<5x128xf64>" in program.as_text()
        expected = plain_sum_and_gradients(*arguments, **settings)
        assert_near(program.compile()(*arguments), expected, 1e-10)


def test_a_target_in_the_padding_of_a_vocabulary_has_no_loss():
    with compile_for("gpu"):
        loss = jax.jit(lambda x, w: linear_cross_entropy(x, w, None, np.full(12, 11)).objective)
        assert np.isnan(loss(*narrow(TOKENS, MATRIX)))


@pytest.mark.parametrize(
    ("platform", "tokens", "vocabulary", "length"),
    [
        ("cpu", 320, 33_280, 320),
        ("cpu", 16_384, 50_304, 333),
        ("gpu", 2_000, 50_304, 2_000),
        ("gpu", 16_384, 50_304, 2_344),
        ("tpu", 16_384, 50_304, 2_344),
        ("gpu", 4_100, 2**27, 8),
        ("cpu", 0, 11, 1),
        ("gpu", 0, 11, 1),
    ],
)
def test_chunks_are_longer_on_accelerators_and_equal(platform, tokens, vocabulary, length):
    with compile_for(platform):
        assert chunk_length(tokens, vocabulary) == length


SMOOTHED = {"label_smoothing": 0.1, "z_loss": 0.05}


@pytest.mark.thorough
@pytest.mark.parametrize("settings", [SMOOTHED, {}], ids=["smoothed", "plain"])
def test_every_result_by_chunks_has_the_gradient_of_the_whole_logits(settings):
    def by_chunks(x, w, b, weights):
        return linear_cross_entropy(x, w, b, TOKEN_TARGETS, weights, chunk=5, **settings)

    def whole(x, w, b, weights):
        return cross_entropy(x @ w + b[None], TOKEN_TARGETS, weights, **settings)

    @functools.partial(jax.jit, static_argnums=0)
    def gradients(losses, *arguments):
        def loss(*arguments):
            found = losses(*arguments)
            return (found.objective + 3.0 * found.nll) / found.count, found

        return jax.grad(loss, argnums=(0, 1, 2, 3), has_aux=True)(*arguments)

    with jax.enable_x64(True):
        arguments = (TOKENS, MATRIX, BIAS, TOKEN_WEIGHTS)
        assert_near(gradients(by_chunks, *arguments), gradients(whole, *arguments), 1e-10)


def test_only_a_program_that_differentiates_the_nll_computes_the_logits_again():
    def products(loss):
        program = jax.jit(
            jax.grad(lambda x: loss(linear_cross_entropy(x, w, b, TOKEN_TARGETS, **SMOOTHED)), has_aux=True)
        )
        return program.lower(x).as_text().count("dot_general")

    x, w, b = narrow(TOKENS, MATRIX, BIAS)
    alone = products(lambda found: (found.objective, None))
    assert products(lambda found: (found.objective, found.nll)) == alone
    assert products(lambda found: (found.objective + found.nll, None)) > alone


@pytest.mark.thorough
@pytest.mark.parametrize("tokens", [0, 1])
def test_loss_by_chunks_of_no_token_and_of_one(tokens):
    x, w, b = narrow(TOKENS[:tokens], MATRIX, BIAS)
    found = linear_sum_and_gradients(x, w, b, TOKEN_TARGETS[:tokens])
    assert_near(found, plain_sum_and_gradients(x, w, b, TOKEN_TARGETS[:tokens]), 2e-6)
    assert float(compiled_linear_loss(x, w, b, TOKEN_TARGETS[:tokens]).count) == tokens


@pytest.mark.thorough
@pytest.mark.parametrize("form", [bool, np.float32])
@pytest.mark.parametrize("filler", [np.nan, np.inf, 1e38])
def test_tokens_that_are_masked_may_be_anything_by_chunks(filler, form):
    x, w, b = narrow(TOKENS, MATRIX, BIAS)
    mask = (TOKEN_WEIGHTS > 0.0).astype(form)
    noisy = np.where(TOKEN_WEIGHTS[:, None] > 0.0, x, np.float32(filler))
    assert (noisy != x).any()
    found = linear_sum_and_gradients(noisy, w, b, TOKEN_TARGETS, mask, chunk=5)
    expected = linear_sum_and_gradients(x, w, b, TOKEN_TARGETS, mask, chunk=5)
    jax.tree.map(np.testing.assert_array_equal, found, expected)
    np.testing.assert_array_equal(found[1][0][TOKEN_WEIGHTS == 0.0], 0.0)
    np.testing.assert_array_equal(compiled_linear_loss(noisy, w, b, TOKEN_TARGETS, mask, chunk=5)[0], found[0])


@pytest.mark.parametrize("filler", [-100, -1, 11, 2**30])
def test_targets_of_masked_tokens_may_be_anything_by_chunks(filler):
    x, w, b = narrow(TOKENS, MATRIX, BIAS)
    mask = TOKEN_WEIGHTS > 0.0
    noisy = np.where(mask, TOKEN_TARGETS, np.int32(filler))
    found = linear_sum_and_gradients(x, w, b, noisy, mask, chunk=5)
    expected = linear_sum_and_gradients(x, w, b, TOKEN_TARGETS, mask, chunk=5)
    jax.tree.map(np.testing.assert_array_equal, found, expected)
    np.testing.assert_array_equal(compiled_linear_loss(x, w, b, noisy, mask, chunk=5)[0], found[0])


@pytest.mark.thorough
def test_targets_may_be_of_a_dtype_that_does_not_hold_the_vocabulary():
    x, w = narrow(TOKENS, np.random.default_rng(1).normal(size=(5, 300)))
    short = linear_sum_and_gradients(x, w, None, TOKEN_TARGETS.astype(np.int8))
    jax.tree.map(np.testing.assert_array_equal, short, linear_sum_and_gradients(x, w, None, TOKEN_TARGETS))


@pytest.mark.thorough
def test_gradients_by_chunks_are_scaled_by_the_cotangent():
    x, w, b = narrow(TOKENS, MATRIX, BIAS)

    def scaled(loss):
        return jax.jit(jax.grad(lambda x, w, b: jnp.square(loss(x, w, b, TOKEN_TARGETS)) / 7.0, argnums=(0, 1, 2)))

    found = scaled(lambda *arguments: linear_cross_entropy(*arguments, chunk=5)[0])(x, w, b)
    loss, gradients = linear_sum_and_gradients(x, w, b, TOKEN_TARGETS, chunk=5)
    assert_near(found, jax.tree.map(lambda g: np.asarray(g) * (2.0 * float(loss) / 7.0), gradients), 1e-6)


def test_large_logits_give_finite_losses_and_gradients_by_chunks():
    arguments = (*narrow(1e4 * TOKENS, MATRIX, BIAS), TOKEN_TARGETS)
    found, expected = linear_sum_and_gradients(*arguments, chunk=5), plain_sum_and_gradients(*arguments)
    assert np.isfinite(found[0])
    assert found[0] > 1e4
    assert_near(found, expected, 1e-6)


@pytest.mark.thorough
@pytest.mark.optimized
@pytest.mark.parametrize("spread", [1.0, 31.0, 33.0, 200.0, 2000.0])
def test_biases_opposite_to_the_scores_do_not_change_loss_and_gradients(spread):
    bias = np.linspace(-spread / 2, spread / 2, 11).astype(np.float32)
    # A feature of 1 and the bias reversed: all logits are what the other features make them.
    x = np.concatenate([TOKENS, np.ones((12, 1))], axis=1).astype(np.float32)
    w = np.concatenate([MATRIX, -bias[None]]).astype(np.float32)
    arguments = (x, w, bias, TOKEN_TARGETS, TOKEN_WEIGHTS.astype(np.float32))
    expected = plain_sum_and_gradients(*arguments)
    assert np.isfinite(expected[0])
    # Logits are differences of biases, and have the digits that these and the bound leave.
    assert_near(linear_sum_and_gradients(*arguments), expected, 2e-6 * max(1.0, spread / 10))


@pytest.mark.sweep(1)
@pytest.mark.parametrize("settings", [{}, {"label_smoothing": 0.1, "z_loss": 0.05}])
def test_a_word_that_its_bias_favours_by_almost_as_much_as_is_allowed_costs_few_digits(settings):
    bias = np.where(np.arange(11) == 3, 31.0, BIAS)
    w = np.where(np.arange(11) == 3, MATRIX - 31.0 * TOKENS[0][:, None] / (TOKENS[0] ** 2).sum(), MATRIX)
    arguments = (TOKENS, w, bias, TOKEN_TARGETS, TOKEN_WEIGHTS)
    with jax.enable_x64(True):
        expected = plain_sum_and_gradients(*arguments, **settings)
        assert_near(linear_sum_and_gradients(*arguments, **settings), expected, 1e-12)
    found = linear_sum_and_gradients(*narrow(TOKENS, w, bias), TOKEN_TARGETS, *narrow(TOKEN_WEIGHTS), **settings)
    assert_near(found, jax.tree.map(np.float32, expected), 5e-6)


@pytest.mark.thorough
@pytest.mark.parametrize("matmul_dtype", ["float32", "bfloat16"])
def test_products_in_a_shorter_dtype_give_one_loss_with_a_gradient_and_without(matmul_dtype):
    with jax.enable_x64(True):
        arguments = (TOKENS, MATRIX, BIAS, TOKEN_TARGETS, TOKEN_WEIGHTS)
        loss = compiled_linear_loss(*arguments, matmul_dtype=matmul_dtype).objective
        found, _ = linear_sum_and_gradients(*arguments, matmul_dtype=matmul_dtype)
        np.testing.assert_allclose(found, loss, rtol=1e-12)


def test_a_word_that_its_bias_rules_out_has_no_gradient():
    bias = np.where(np.arange(11) == 3, -np.inf, BIAS).astype(np.float32)
    arguments = (*narrow(TOKENS, MATRIX), bias, np.full(12, 5, np.int32))
    expected = plain_sum_and_gradients(*arguments)
    assert np.isfinite(expected[0])
    assert_near(linear_sum_and_gradients(*arguments), expected, 1e-6)


@pytest.mark.thorough
def test_products_in_bfloat16_are_near_and_do_not_change_the_dtypes():
    arguments = (*narrow(TOKENS, MATRIX, BIAS), TOKEN_TARGETS)
    short = linear_sum_and_gradients(*arguments, chunk=5, matmul_dtype="bfloat16")
    exact = linear_sum_and_gradients(*arguments, chunk=5)
    assert_near(short, exact, 0.02)
    for found, expected in zip(jax.tree.leaves(short), jax.tree.leaves(exact), strict=True):
        assert not np.array_equal(found, expected)
    # All that is rounded before the loss are x and W.
    rounded = [jnp.asarray(a, jnp.bfloat16).astype(np.float32) for a in arguments[:2]]
    np.testing.assert_allclose(short[0], linear_sum_and_gradients(*rounded, *arguments[2:], chunk=5)[0], rtol=1e-6)


@pytest.mark.thorough
def test_bfloat16_tokens_are_scored_in_float32_by_chunks():
    x, w, b = (jnp.asarray(a, jnp.bfloat16) for a in (TOKENS, MATRIX, BIAS))
    loss, gradients = linear_sum_and_gradients(x, w, b, TOKEN_TARGETS, chunk=5)
    assert loss.dtype == np.float32
    assert {g.dtype for g in gradients} == {jnp.dtype(jnp.bfloat16)}
    wide = [a.astype(np.float32) for a in (x, w, b)]
    expected, exact = linear_sum_and_gradients(*wide, TOKEN_TARGETS, chunk=5)
    np.testing.assert_allclose(loss, expected, rtol=1e-6)
    assert_near([g.astype(np.float32) for g in gradients], list(exact), 0.02)


@pytest.mark.thorough
@pytest.mark.optimized
def test_loss_by_chunks_and_its_gradient_never_hold_all_logits():
    tokens, vocabulary, chunk = 4096, 1000, 64
    all_logits = 4 * tokens * vocabulary
    shapes = [(tokens, 8), (8, vocabulary), (vocabulary,)]
    arguments = [jax.ShapeDtypeStruct(shape, np.float32) for shape in shapes]
    arguments.append(jax.ShapeDtypeStruct((tokens,), np.int32))

    def memory(function, **settings):
        return function.lower(*arguments, **settings).compile().memory_analysis().temp_size_in_bytes

    assert memory(linear_sum_and_gradients, chunk=chunk) < all_logits / 10
    assert memory(compiled_linear_loss, chunk=chunk) < all_logits / 10
    assert memory(plain_sum_and_gradients) > all_logits
    if not jax.config.values["jax_disable_most_optimizations"]:  # then two arrays, as the docstring says
        for function in (linear_sum_and_gradients, compiled_linear_loss):
            assert memory(function, chunk=1024) < 2.2 * 4 * 1024 * vocabulary


@pytest.mark.thorough
def test_loss_by_chunks_of_the_default_length_holds_a_part_of_many_logits():
    tokens, vocabulary = 256, 2**20
    arguments = [jax.ShapeDtypeStruct(shape, np.float32) for shape in [(tokens, 8), (8, vocabulary)]]
    program = linear_sum_and_gradients.lower(*arguments, None, jax.ShapeDtypeStruct((tokens,), np.int32)).compile()
    assert program.memory_analysis().temp_size_in_bytes < 4 * tokens * vocabulary / 3


@pytest.mark.thorough
@pytest.mark.parametrize("chunk", [16, 64])
def test_devices_that_share_the_tokens_share_every_chunk_and_give_what_one_gives(devices, chunk):
    tokens, width, vocabulary = 512, 5, 1000
    generator = np.random.default_rng(0)
    x, w = (generator.normal(size=shape).astype(np.float32) for shape in [(tokens, width), (width, vocabulary)])
    targets = generator.integers(0, vocabulary, tokens).astype(np.int32)
    expected = linear_sum_and_gradients(x, w, None, targets, chunk=chunk)

    mesh = jax.sharding.Mesh(np.array(devices), ("batch",))
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("batch"))
    shared = (jax.device_put(x, sharding), w, None, jax.device_put(targets, sharding))
    with compile_for("gpu"):  # layout constraints of CPUs make XLA gather the products
        program = linear_sum_and_gradients.lower(*shared, chunk=chunk)
    assert_near(program.compile()(*shared), expected, 1e-5)
    columns = 1024  # the vocabulary is padded
    logits = {int(rows) for rows in re.findall(rf"f32\[(\d+),{columns}\]", program.compile().as_text())}
    assert logits == {chunk // len(devices), width}  # a device's part of a chunk, and W's gradient


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("x", (3, 4, 5)),
        ("x", (12, 6)),
        ("x", (13, 5)),
        ("w", (5,)),
        ("b", (1,)),
        ("targets", (12, 1)),
        ("loss_mask", (11,)),
    ],
)
def test_shapes_by_chunks_that_do_not_fit_are_named(name, shape):
    x, w, b, loss_mask = narrow(TOKENS, MATRIX, BIAS, TOKEN_WEIGHTS)
    arrays = {"x": x, "w": w, "b": b, "targets": TOKEN_TARGETS, "loss_mask": loss_mask}
    arrays[name] = np.zeros(shape, arrays[name].dtype)
    got = ", ".join(f"{each} {array.shape}" for each, array in arrays.items())
    message = f"expected x [N, D], w [D, V], b [V] or None, targets and loss_mask [N], got {got}"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        linear_cross_entropy(**arrays)


@pytest.mark.parametrize("chunk", [0, -4])
def test_chunks_of_no_token_are_refused(chunk):
    with pytest.raises(ValueError, match=f"chunk must be at least 1 token, got {chunk}"):
        linear_cross_entropy(*narrow(TOKENS, MATRIX, BIAS), TOKEN_TARGETS, chunk=chunk)
