import dataclasses
import functools
import json
import re

import flax
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch
import transformers

from jaxnlp.models import ModelConfig
from jaxnlp.models.gpt import GPTConfig
from jaxnlp.serialization import from_json, to_json

LAYERS, HEADS, WIDTH, CONTEXT, VOCABULARY, BATCH = 2, 2, 8, 10, 13, 3
TOKENS = np.random.default_rng(0).integers(0, VOCABULARY, size=(BATCH, CONTEXT)).astype(np.int32)
TARGETS = np.random.default_rng(1).integers(0, VOCABULARY, size=(BATCH, CONTEXT)).astype(np.int32)
DROPOUT = {"embedding_dropout_rate": 0.2, "attention_dropout_rate": 0.3, "residual_dropout_rate": 0.1}
LATENTS = 4
VARIANTS = {
    "vanilla": {},
    "synthesizer": {"variant": "synthesizer"},
    "prefix": {"variant": "perceiver", "num_layers": 4, "num_latents": LATENTS},
    "along": {"variant": "perceiver", "num_layers": 4, "num_latents": LATENTS, "latent_placement": "along"},
}
STANDS_AT = {"prefix": (0, 1, 2, 3), "along": (1, 4, 6, 9)}  # what the latents' positions come to
each_variant = pytest.mark.parametrize("variant", VARIANTS)


def make_model(*, vocabulary_size=VOCABULARY, **changes):
    """A small GPT that loops over its layers, since that compiles in half the time; a test below says it may."""
    settings = {"num_layers": LAYERS, "num_heads": HEADS, "width": WIDTH, "context_length": CONTEXT}
    return GPTConfig(**(settings | {"scan_layers": True} | changes)).build(vocabulary_size)


def dtypes_of(cache):
    return {x.dtype for x in jax.tree.leaves(cache.layers)}


def make_key(seed):
    return jax.random.key(seed, impl="rbg")  # compiles faster than the default


def shapes_of(model):
    return jax.eval_shape(lambda key: model.init(key, np.zeros((1, 1), np.int32)), jax.random.key(0))["params"]


@functools.partial(jax.jit, static_argnums=0)
def initial_params(model, key):
    return model.init(key, np.zeros((1, 1), np.int32))["params"]


def random_params(model):
    """Weights of ordinary size, so that every part matters; none is zero or one."""
    generator = np.random.default_rng(2)
    draw = {
        "kernel": lambda shape: 0.4 * generator.normal(size=shape),
        "bias": lambda shape: 0.4 * generator.normal(size=shape),
        "scale": lambda shape: 1.0 + 0.4 * generator.normal(size=shape),
    }
    return jax.tree_util.tree_map_with_path(
        lambda path, leaf: np.float32(draw.get(path[-1].key, draw["kernel"])(leaf.shape)), shapes_of(model)
    )


@functools.partial(jax.jit, static_argnums=0, static_argnames="deterministic")
def apply(model, params, tokens, *, deterministic=True, dropout_key=None, cache=None, count=None):
    rngs = None if dropout_key is None else {"dropout": dropout_key}
    return model.apply({"params": params}, tokens, deterministic=deterministic, rngs=rngs, cache=cache, count=count)


@functools.partial(jax.jit, static_argnums=0)
def logits_and_gradients(model, params, dropout_key=None):
    """Logits, and gradients of the mean loss: in training when there is a key."""

    def loss(params):
        logits = apply(model, params, TOKENS, deterministic=dropout_key is None, dropout_key=dropout_key)
        return mean_loss(logits), logits

    gradients, logits = jax.grad(loss, has_aux=True)(params)
    return logits, gradients


@jax.jit
def mean_loss(logits):
    return optax.softmax_cross_entropy_with_integer_labels(logits, TARGETS).mean()


def from_hugging_face(named):
    """The parameter tree that holds the tensors of a GPT2LMHeadModel, or their gradients."""

    def value(name):
        return named[name].detach().numpy()

    def dense(name):
        return {leaf: stacked(f"{name}.{source}") for leaf, source in (("kernel", "weight"), ("bias", "bias"))}

    def stacked(name):
        return np.stack([value(f"transformer.h.{layer}.{name}") for layer in range(LAYERS)])

    def stacked_norm(name):
        return {"scale": stacked(f"{name}.weight"), "bias": stacked(f"{name}.bias")}

    params = {
        "tokens": {"embedding": value("transformer.wte.weight")},
        "positions": value("transformer.wpe.weight"),
        "blocks": {
            "attention_norm": stacked_norm("ln_1"),
            "attention": {"qkv": dense("attn.c_attn"), "out": dense("attn.c_proj")},
            "feed_forward_norm": stacked_norm("ln_2"),
            "feed_forward": {"up": dense("mlp.c_fc"), "down": dense("mlp.c_proj")},
        },
        "final_norm": {"scale": value("transformer.ln_f.weight"), "bias": value("transformer.ln_f.bias")},
    }
    return params | ({"head": {"kernel": value("lm_head.weight").T}} if "lm_head.weight" in named else {})


@pytest.mark.parametrize("tied", [False, True], ids=["own_head", "tied"])
def test_logits_and_gradients_equal_those_of_hugging_face_gpt2(tied):
    theirs = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(
            vocab_size=VOCABULARY,
            n_positions=CONTEXT,
            n_embd=WIDTH,
            n_layer=LAYERS,
            n_head=HEADS,
            activation_function="gelu_new",
            tie_word_embeddings=tied,
        )
    ).eval()
    named = dict(theirs.named_parameters())
    torch.manual_seed(0)
    for parameter in named.values():
        torch.nn.init.normal_(parameter, std=0.4)
    expected = theirs(torch.tensor(TOKENS, dtype=torch.int64)).logits
    labels = torch.tensor(TARGETS, dtype=torch.int64)
    torch.nn.functional.cross_entropy(expected.reshape(-1, VOCABULARY), labels.reshape(-1)).backward()

    model = make_model(tie_embeddings=tied, scan_layers=False)
    logits, gradients = logits_and_gradients(model, from_hugging_face(named))
    np.testing.assert_allclose(logits, expected.detach(), atol=2e-5)
    expected_gradients = from_hugging_face({name: parameter.grad for name, parameter in named.items()})
    assert jax.tree.structure(gradients) == jax.tree.structure(expected_gradients)
    for (path, found), wanted in zip(
        jax.tree_util.tree_leaves_with_path(gradients), jax.tree.leaves(expected_gradients), strict=True
    ):
        np.testing.assert_allclose(found, wanted, atol=1e-5, err_msg=jax.tree_util.keystr(path))


def seen_tokens(variant):
    """[T, S]: which tokens each logit depends on. A perceiver's prefix hides all but the first M and the newest."""
    sees = np.tri(CONTEXT, dtype=bool)
    return sees & ((np.arange(CONTEXT) < LATENTS)[None] | np.eye(CONTEXT, dtype=bool)) if variant == "prefix" else sees


@each_variant
def test_future_tokens_do_not_change_past_logits_and_past_ones_do_as_the_variant_claims(variant):
    model = make_model(**VARIANTS[variant])
    params = random_params(model)
    before = np.asarray(apply(model, params, TOKENS))
    for position, sees in enumerate(seen_tokens(variant).T):
        changed = TOKENS.copy()
        changed[:, position] = (changed[:, position] + 1) % VOCABULARY
        after = np.asarray(apply(model, params, changed))
        np.testing.assert_array_equal(before[:, ~sees], after[:, ~sees])
        assert np.abs(before[:, sees] - after[:, sees]).max(axis=-1).min() > 1e-5, position


@pytest.mark.parametrize("length", [3, CONTEXT])
@pytest.mark.parametrize("variant", STANDS_AT)
def test_a_latent_changes_the_logits_from_its_position_on(variant, length):
    model = make_model(**VARIANTS[variant])
    params = random_params(model)
    before = np.asarray(apply(model, params, TOKENS[:, :length]))
    for latent, position in enumerate(STANDS_AT[variant]):
        changed = jax.tree.map(np.copy, params)
        changed["down_project"]["latents"][:, latent] += np.linspace(-1.0, 1.0, WIDTH, dtype=np.float32)
        after = np.asarray(apply(model, changed, TOKENS[:, :length]))
        np.testing.assert_array_equal(before[:, :position], after[:, :position])
        assert (np.abs(before - after)[:, position:].max(axis=-1) > 1e-5).all(), latent


@each_variant
def test_examples_of_a_batch_do_not_see_each_other(variant):
    model = make_model(**VARIANTS[variant])
    params = random_params(model)
    changed = TOKENS.copy()
    changed[1] = (changed[1] + 1) % VOCABULARY
    before, after = (np.asarray(apply(model, params, tokens)) for tokens in (TOKENS, changed))
    np.testing.assert_array_equal(before[[0, 2]], after[[0, 2]])
    assert np.abs(before[1] - after[1]).max(axis=-1).min() > 1e-4


@pytest.fixture
def optimised_programs():
    """As in training, where a compiler that fuses differently could give other bits."""
    before = jax.config.values["jax_disable_most_optimizations"]
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", before)


@pytest.mark.usefixtures("optimised_programs")
@pytest.mark.parametrize(
    ("variant", "changes"),
    [
        ("vanilla", {"remat": True}),
        ("vanilla", {"scan_layers": True, "remat": True}),
        ("synthesizer", {"scan_layers": True, "remat": True}),
        ("along", {"remat": True}),
    ],
    ids=lambda value: value if isinstance(value, str) else "+".join(value),
)
def test_looping_over_layers_and_recomputing_change_no_numbers(variant, changes):
    settings = VARIANTS[variant] | DROPOUT | {"use_bias": False, "tie_embeddings": True}
    plain, other = make_model(**settings, scan_layers=False), make_model(**settings | {"scan_layers": False} | changes)
    params = random_params(plain)
    logits, gradients = logits_and_gradients(plain, params, make_key(3))
    other_logits, other_gradients = logits_and_gradients(other, params, make_key(3))
    np.testing.assert_array_equal(other_logits, logits)
    jax.tree.map(functools.partial(np.testing.assert_allclose, atol=1e-6), other_gradients, gradients)


@pytest.mark.usefixtures("optimised_programs")
@pytest.mark.parametrize("variant", ["vanilla", "prefix"])
def test_looping_over_layers_draws_the_same_initial_weights_and_gives_the_same_logits(variant):
    settings = VARIANTS[variant] | {"use_bias": False, "tie_embeddings": True}
    plain, looped = (make_model(**settings, scan_layers=scan_layers) for scan_layers in (False, True))
    jax.tree.map(np.testing.assert_array_equal, initial_params(looped, make_key(0)), initial_params(plain, make_key(0)))
    params = random_params(plain)
    np.testing.assert_array_equal(apply(looped, params, TOKENS), apply(plain, params, TOKENS))


@pytest.mark.parametrize(
    ("variant", "name"),
    [
        *(("vanilla", name) for name in DROPOUT),
        ("synthesizer", "attention_dropout_rate"),
        ("along", "residual_dropout_rate"),
    ],
)
def test_each_dropout_needs_a_key_and_changes_the_logits_in_training(variant, name):
    model = make_model(**VARIANTS[variant], **{name: 0.5})
    params = random_params(model)
    with pytest.raises(flax.errors.InvalidRngError, match="dropout"):
        jax.eval_shape(lambda: apply(model, params, TOKENS, deterministic=False))
    first, again, other = (
        apply(model, params, TOKENS, deterministic=False, dropout_key=make_key(seed)) for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(again, first)
    assert not np.allclose(first, other)
    assert not np.allclose(first, apply(make_model(**VARIANTS[variant]), params, TOKENS))


def test_nothing_is_dropped_outside_training():
    model, plain = make_model(**DROPOUT), make_model()
    params = random_params(plain)
    np.testing.assert_array_equal(apply(model, params, TOKENS), apply(plain, params, TOKENS))


def test_layers_drop_different_elements():
    # Each feed-forward branch adds a dropped-out 1 to a residual stream of zeros: 0, 2 or 4 after two layers, but
    # never 2 if both drew the same mask. Their normalised values are read off by a head that is the identity.
    model = make_model(vocabulary_size=64, width=64, residual_dropout_rate=0.5)
    params = jax.tree.map(lambda leaf: np.zeros(leaf.shape, np.float32), shapes_of(model))
    params["blocks"]["feed_forward"]["down"]["bias"] += 1.0
    params["final_norm"]["scale"] += 1.0
    params["head"]["kernel"] += np.eye(64, dtype=np.float32)
    tokens = np.zeros((1, 4), np.int32)
    logits = np.asarray(apply(model, params, tokens, deterministic=False, dropout_key=make_key(0)))
    assert [len(np.unique(row.round(3))) for row in logits[0]] == [3, 3, 3, 3]


@pytest.fixture(scope="module")
def deep_params():
    """Of a model with 8 layers, as initialised."""
    return initial_params(make_model(num_layers=8, width=32), make_key(0))


def test_initial_loss_is_that_of_guessing(deep_params):
    logits = apply(make_model(num_layers=8, width=32), deep_params, TOKENS)
    assert abs(float(mean_loss(logits)) - np.log(VOCABULARY)) < 0.02


def test_initial_weights_have_the_spread_of_gpt2(deep_params):
    blocks = deep_params["blocks"]
    residual = 0.02 / np.sqrt(2 * 8)
    for kernel, stddev in (
        (deep_params["tokens"]["embedding"], 0.02),
        (deep_params["positions"], 0.02),
        (deep_params["head"]["kernel"], 0.02),
        (blocks["attention"]["qkv"]["kernel"], 0.02),
        (blocks["attention"]["out"]["kernel"], residual),
        (blocks["feed_forward"]["up"]["kernel"], 0.02),
        (blocks["feed_forward"]["down"]["kernel"], residual),
    ):
        kernel = np.asarray(kernel)
        assert abs(kernel.std() / stddev - 1.0) < 5.0 / np.sqrt(2 * kernel.size)
        assert abs(kernel.mean()) < 5.0 * stddev / np.sqrt(kernel.size)
    for path, leaf in jax.tree_util.tree_leaves_with_path(deep_params):
        if path[-1].key in ("bias", "scale"):
            np.testing.assert_array_equal(leaf, float(path[-1].key == "scale"))


def test_layers_begin_with_different_weights(deep_params):
    kernels = np.asarray(deep_params["blocks"]["attention"]["qkv"]["kernel"]).reshape(8, -1)
    correlations = np.corrcoef(kernels) - np.eye(8)
    assert np.abs(correlations).max() < 5.0 / np.sqrt(kernels.shape[1])


@pytest.mark.parametrize(
    ("variant", "sizes", "scan_layers"),
    [
        ("vanilla", (5, 1, 1, 1, 1, 1), False),
        ("vanilla", (5, 1, 1, 1, 1, 1), True),
        ("vanilla", (5, 5), True),
        ("vanilla", (1,) * CONTEXT, True),
        ("vanilla", (CONTEXT,), True),
        *((variant, (1, 4, 1, 1, 1, 1, 1), True) for variant in ("synthesizer", "prefix", "along")),
    ],
    ids=str,
)
def test_reading_with_a_cache_equals_reading_at_once(variant, sizes, scan_layers):
    model = make_model(**VARIANTS[variant], scan_layers=scan_layers)
    params = random_params(model)
    apart, cache, parts, filled = model.decoding_params(params), model.empty_cache(BATCH), [], 0
    for size in sizes:
        logits, cache = apply(model, apart, TOKENS[:, filled : filled + size], cache=cache)
        parts.append(logits)
        filled += size
        assert int(cache.length) == filled
    np.testing.assert_allclose(np.concatenate(parts, axis=1), apply(model, params, TOKENS), atol=1e-5)


@each_variant
def test_what_lies_behind_the_length_of_a_cache_is_not_seen(variant):
    model = make_model(**VARIANTS[variant])
    params = model.decoding_params(random_params(model))
    _, cache = apply(model, params, TOKENS[:, :5], cache=model.empty_cache(BATCH))
    unfilled = (np.arange(CONTEXT) >= 5)[:, None]
    noisy = cache.replace(layers=jax.tree.map(lambda x: np.where(unfilled, np.float32(100.0), x), cache.layers))
    next_token = TOKENS[:, 5:6]
    np.testing.assert_array_equal(
        apply(model, params, next_token, cache=noisy)[0], apply(model, params, next_token, cache=cache)[0]
    )


@each_variant
def test_tokens_that_pad_are_not_read(variant):
    model = make_model(**VARIANTS[variant])
    params = model.decoding_params(random_params(model))
    expected, expected_cache = apply(model, params, TOKENS[:, :5], cache=model.empty_cache(BATCH))
    for padding in (0, 7):
        padded = np.pad(TOKENS[:, :5], [(0, 0), (0, 3)], constant_values=padding)
        logits, cache = apply(model, params, padded, cache=model.empty_cache(BATCH), count=5)
        np.testing.assert_allclose(logits[:, :5], expected, atol=1e-5)
        assert (int(cache.length), cache.length.dtype) == (5, jnp.int32)
        after, _ = apply(model, params, TOKENS[:, 5:6], cache=cache)
        np.testing.assert_allclose(after, apply(model, params, TOKENS[:, 5:6], cache=expected_cache)[0], atol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@each_variant
def test_empty_cache_has_room_for_the_context(variant, dtype):
    model = make_model(**VARIANTS[variant], dtype=dtype)
    cache = model.empty_cache(5)
    heads = (5, HEADS, CONTEXT, WIDTH // HEADS)
    keys_and_values, values, inputs = [[heads] * 2] * LAYERS, [[heads]] * LAYERS, [[(5, CONTEXT, WIDTH)]]
    expected = {"vanilla": keys_and_values, "synthesizer": values, "prefix": inputs, "along": inputs}[variant]
    assert [[x.shape for x in layer] for layer in cache.layers] == expected
    assert dtypes_of(cache) == {jnp.dtype(dtype)}
    assert (model.capacity, int(cache.length)) == (CONTEXT, 0)


@pytest.mark.parametrize(("tied", "hidden_width"), [(False, None), (True, 5)])
@pytest.mark.parametrize("use_bias", [False, True])
@each_variant
def test_number_of_parameters_follows_the_formula(variant, tied, use_bias, hidden_width):
    model = make_model(**VARIANTS[variant], tie_embeddings=tied, use_bias=use_bias, hidden_width=hidden_width)
    d, f = WIDTH, hidden_width or 4 * WIDTH
    scores = WIDTH // HEADS * CONTEXT if variant == "synthesizer" else 0
    attention = (3 * d * d + scores + (3 * d + CONTEXT if use_bias else 0)) if scores else 4 * d * d + 4 * d * use_bias
    norm = 2 * d if use_bias else d
    block = attention + 2 * norm + 2 * d * f + (f + d) * use_bias
    # The latents, the norms of both memories, and that of the queries on the way up: the assignment has none.
    perceiver = {"prefix": LATENTS * d + norm, "along": LATENTS * d + 2 * norm}.get(variant, 0)
    expected = VOCABULARY * d * (1 if tied else 2) + CONTEXT * d + model.config.num_layers * block + perceiver + norm
    assert sum(leaf.size for leaf in jax.tree.leaves(shapes_of(model))) == expected


@pytest.mark.parametrize(("variant", "count"), [("vanilla", 7), ("synthesizer", 8), ("prefix", 7 + 8 + 7)])
def test_without_biases_there_is_no_bias_leaf(variant, count):
    def biases(model):
        return [path for path, _ in jax.tree_util.tree_leaves_with_path(shapes_of(model)) if path[-1].key == "bias"]

    assert biases(make_model(**VARIANTS[variant], use_bias=False)) == []
    assert len(biases(make_model(**VARIANTS[variant]))) == count


@each_variant
def test_bfloat16_keeps_float32_parameters_and_logits(variant):
    settings = VARIANTS[variant]
    model, exact_model = (make_model(**settings, dtype=dtype, tie_embeddings=True) for dtype in ("bfloat16", "float32"))
    params = random_params(exact_model)
    with jax.numpy_dtype_promotion("standard"):  # flax's LayerNorm promotes bfloat16
        assert {leaf.dtype for leaf in jax.tree.leaves(shapes_of(model))} == {jnp.dtype("float32")}
        untied = make_model(**settings, dtype="bfloat16")
        assert jax.eval_shape(untied.init_with_output, make_key(0), TOKENS)[0].dtype == jnp.float32
        logits, cache = apply(model, model.decoding_params(params), TOKENS, cache=model.empty_cache(BATCH))
    exact = apply(exact_model, params, TOKENS)
    assert logits.dtype == jnp.float32
    assert dtypes_of(cache) == {jnp.dtype("bfloat16")}
    np.testing.assert_allclose(logits, exact, atol=0.15)
    assert np.abs(logits - exact).max() > 1e-4  # it did compute in bfloat16


@pytest.mark.parametrize(
    ("variant", "tied"), [("vanilla", False), ("vanilla", True), ("synthesizer", True), ("along", True)]
)
def test_rounded_matmul_operands_give_logits_and_gradients_near_the_exact_ones(variant, tied):
    settings = VARIANTS[variant] | {"tie_embeddings": tied}
    exact_model, model = (make_model(**settings, matmul_dtype=dtype) for dtype in (None, "bfloat16"))
    params = random_params(exact_model)
    assert jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), shapes_of(model)) == jax.tree.map(
        lambda leaf: (leaf.shape, leaf.dtype), shapes_of(exact_model)
    )
    found, expected = (logits_and_gradients(each, params) for each in (model, exact_model))
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for (path, leaf), exact in zip(jax.tree_util.tree_leaves_with_path(found), jax.tree.leaves(expected), strict=True):
        name = jax.tree_util.keystr(path)
        assert leaf.dtype == jnp.float32, name
        assert np.isfinite(leaf).all(), name
        error = np.linalg.norm(leaf - exact) / np.linalg.norm(exact)
        assert 1e-4 < error < (0.03 if variant == "vanilla" else 0.05), name


@pytest.mark.parametrize("variant", ["vanilla", "prefix"])
def test_reading_with_a_cache_rounds_no_operands(variant):
    model, exact_model = (make_model(**VARIANTS[variant], matmul_dtype=dtype) for dtype in ("bfloat16", None))
    params = random_params(model)
    apart, cache, parts, filled = model.decoding_params(params), model.empty_cache(BATCH), [], 0
    assert dtypes_of(cache) == {jnp.dtype("float32")}
    for size in (5, 1, 1, 1, 1, 1):
        logits, cache = apply(model, apart, TOKENS[:, filled : filled + size], cache=cache)
        parts.append(logits)
        filled += size
    np.testing.assert_allclose(np.concatenate(parts, axis=1), apply(exact_model, params, TOKENS), atol=1e-5)
    assert np.abs(apply(model, params, TOKENS) - apply(exact_model, params, TOKENS)).max() > 1e-4


@each_variant
def test_decoding_params_are_those_of_each_block(variant):
    model = make_model(**VARIANTS[variant])
    params = random_params(model)
    apart = model.decoding_params(params)
    assert set(apart) == set(params) - {"blocks"} | {"block_0", "block_1"}
    again = jax.tree.map(lambda *leaves: np.stack(leaves), apart["block_0"], apart["block_1"])
    jax.tree.map(np.testing.assert_array_equal, again, params["blocks"])


def test_a_cache_with_stacked_parameters_is_refused():
    model = make_model()
    with pytest.raises(ValueError, match=re.escape("apply the model to decoding_params(params)")):
        apply(model, random_params(model), TOKENS, cache=model.empty_cache(BATCH))


def test_a_sequence_longer_than_the_context_is_refused():
    with pytest.raises(ValueError, match=re.escape("a sequence of 11 tokens exceeds the context of 10")):
        make_model().apply({}, np.zeros((1, CONTEXT + 1), np.int32))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_layers": 0}, "model.num_layers must be at least 1, got 0"),
        ({"num_heads": 0}, "model.num_heads must be at least 1, got 0"),
        ({"width": -8}, "model.width must be at least 1, got -8"),
        ({"context_length": 0}, "model.context_length must be at least 1, got 0"),
        ({"hidden_width": 0}, "model.hidden_width must be at least 1, got 0"),
        ({"variant": "perceiver", "num_layers": 1}, "model.num_layers must be at least 2 for a perceiver, got 1"),
        (
            {"variant": "perceiver", "num_latents": 0},
            "model.num_latents must lie between 1 and model.context_length, 128, got 0",
        ),
        (
            {"variant": "perceiver", "num_latents": 65, "context_length": 64},
            "model.num_latents must lie between 1 and model.context_length, 64, got 65",
        ),
        (
            {"latent_placement": "along"},
            "model.latent_placement along is of a perceiver's latents, and model.variant is vanilla",
        ),
        (
            {"variant": "synthesizer", "attention_implementation": "xla"},
            "model.attention_implementation must be auto or vjp for a synthesizer, got xla",
        ),
        ({"num_heads": 3}, "model.num_heads must divide model.width, got 3 heads for width 128"),
        ({"embedding_dropout_rate": 1.0}, "model.embedding_dropout_rate must lie in [0, 1), got 1.0"),
        ({"attention_dropout_rate": -0.1}, "model.attention_dropout_rate must lie in [0, 1), got -0.1"),
        ({"residual_dropout_rate": float("nan")}, "model.residual_dropout_rate must lie in [0, 1), got nan"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_config_that_cannot_be_is_refused_with_its_value(changes, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        GPTConfig(**changes)


def test_configs_are_values():
    config = GPTConfig(width=64)
    assert config == GPTConfig(width=64)
    assert hash(config) == hash(GPTConfig(width=64))
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.width = 32


@pytest.mark.parametrize("tied", [True, False])
def test_logits_are_the_hidden_states_through_the_output_layer(tied):
    model = make_model(tie_embeddings=tied)
    params = initial_params(model, make_key(0))
    hidden = model.apply({"params": params}, TOKENS, return_hidden=True)
    w, b = model.output_layer(params)
    assert b is None
    assert hidden.shape == (BATCH, CONTEXT, WIDTH)
    np.testing.assert_allclose(hidden @ w, model.apply({"params": params}, TOKENS), atol=1e-5)


def test_implementations_of_attention_give_the_same_gradients_and_an_impossible_one_is_refused():
    def gradients(implementation):
        model = make_model(attention_implementation=implementation)
        params = initial_params(model, make_key(0))
        return jax.jit(jax.grad(lambda p: jnp.square(model.apply({"params": p}, TOKENS)).sum()))(params)

    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), gradients("vjp"), gradients("xla"))
    with pytest.raises(ValueError, match="implementation='cudnn'"):
        gradients("cudnn")


def test_a_perceiver_of_two_layers_has_no_blocks_between_and_reads_with_a_cache():
    model = make_model(**(VARIANTS["prefix"] | {"num_layers": 2}))
    params = random_params(model)
    assert "blocks" not in params
    logits, _ = apply(model, model.decoding_params(params), TOKENS, cache=model.empty_cache(BATCH))
    np.testing.assert_allclose(logits, apply(model, params, TOKENS), atol=1e-5)


def test_latents_are_ignored_where_there_is_no_perceiver():
    assert GPTConfig(context_length=8, num_latents=32).build(3).config.num_latents == 32


@pytest.mark.parametrize("variant", VARIANTS)
def test_config_of_each_variant_reads_back_equal_from_json(variant):
    config = make_model(**VARIANTS[variant]).config
    assert from_json(json.loads(json.dumps(to_json(config))), ModelConfig) == config


EXPECTED_MAPS = {
    "vanilla": dict.fromkeys(("block_0", "block_1"), (CONTEXT, CONTEXT)),
    "synthesizer": dict.fromkeys(("block_0", "block_1"), (CONTEXT, CONTEXT)),
    "prefix": {
        "down_project": (LATENTS, LATENTS),  # no latent sees an input behind the last
        "block_0": (LATENTS, LATENTS),
        "block_1": (LATENTS, LATENTS),
        "up_project": (CONTEXT, LATENTS),
    },
    "along": {
        "down_project": (LATENTS, CONTEXT),
        "block_0": (LATENTS, LATENTS),
        "block_1": (LATENTS, LATENTS),
        "up_project": (CONTEXT, LATENTS + CONTEXT),
    },
}


def attention_maps(model, params):
    """Compiled; the names apart, since jit would sort them."""
    names = []

    @jax.jit
    def read(params):
        maps = model.attention_maps(params, TOKENS)
        names.extend(maps)
        return list(maps.values())

    weights = map(np.asarray, read(params))
    return dict(zip(names, weights, strict=True))


@each_variant
def test_attention_maps_are_causal_weights_in_the_order_of_the_layers(variant):
    model = make_model(**VARIANTS[variant])
    maps = attention_maps(model, random_params(model))
    assert [(name, weights.shape) for name, weights in maps.items()] == [
        (name, (BATCH, HEADS, *shape)) for name, shape in EXPECTED_MAPS[variant].items()
    ]
    tokens, latents = np.arange(CONTEXT), np.array(STANDS_AT.get(variant, ()))
    memory = np.concatenate([latents, tokens]) if variant == "along" else latents
    for name, weights in maps.items():
        queries = tokens if name == "up_project" or not latents.size else latents
        keys = {"down_project": tokens, "up_project": memory}.get(name, queries)[: weights.shape[3]]
        sees = keys[None] <= queries[:, None]
        np.testing.assert_allclose(
            weights.sum(axis=-1), np.broadcast_to(sees.any(axis=-1), weights.shape[:3]), rtol=1e-5
        )
        np.testing.assert_array_equal(weights > 0.0, np.broadcast_to(sees, weights.shape))


@each_variant
def test_each_attention_map_is_its_own_layers(variant):
    model = make_model(**VARIANTS[variant])
    params = random_params(model)
    before = attention_maps(model, params)
    changed = jax.tree.map(np.copy, params)
    for leaf in jax.tree.leaves(changed["blocks"]["attention"]):
        leaf[1] *= 2.0
    after = attention_maps(model, changed)
    same = {name: np.array_equal(before[name], after[name]) for name in before}
    assert same == {name: name in ("down_project", "block_0") for name in before}


@each_variant
def test_attention_maps_that_nobody_asks_for_are_not_computed(variant, monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("computed")

    monkeypatch.setattr("jaxnlp.nn.attention.attention_weights", refuse)
    monkeypatch.setattr("jaxnlp.nn.synthesizer.synthesizer_weights", refuse)
    model = make_model(**VARIANTS[variant], residual_dropout_rate=0.1)
    params = shapes_of(model)
    rngs = {"dropout": make_key(0)}

    def loss(params):
        return mean_loss(model.apply({"params": params}, TOKENS, deterministic=False, rngs=rngs))

    jax.eval_shape(jax.grad(loss), params)
    with pytest.raises(AssertionError, match="computed"):
        jax.eval_shape(model.attention_maps, params, TOKENS)


@pytest.mark.parametrize("variant", ["synthesizer", "prefix"])
def test_initial_loss_of_a_variant_is_that_of_guessing(variant):
    model = make_model(**VARIANTS[variant], width=32)
    logits = apply(model, initial_params(model, make_key(0)), TOKENS)
    assert abs(float(mean_loss(logits)) - np.log(VOCABULARY)) < 0.02
