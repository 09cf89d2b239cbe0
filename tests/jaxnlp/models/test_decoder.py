"""What models of each kind see, cache and hold, and their attention maps."""

import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxnlp.models import ModelConfig
from jaxnlp.saving.serialization import from_json, to_json
from tests.jaxnlp.models.gpt_helpers import (
    BATCH,
    CONTEXT,
    HEADS,
    LATENTS,
    LAYERS,
    TOKENS,
    VARIANTS,
    VOCABULARY,
    WIDTH,
    apply,
    initial_params,
    make_key,
    make_model,
    mean_loss,
    random_params,
    shapes_of,
)
from tests.jaxnlp.models.parameter_helpers import assert_described

STANDS_AT = {"prefix": (0, 1, 2, 3), "along": (1, 4, 6, 9)}  # the latents' positions
each_variant = pytest.mark.parametrize("variant", VARIANTS)


def dtypes_of(cache):
    return {x.dtype for x in jax.tree.leaves(cache.layers)}


def seen_tokens(variant):
    """[T, S]: which tokens each logit depends on. A perceiver's prefix hides all but the first M and the newest."""
    sees = np.tri(CONTEXT, dtype=bool)
    return sees & ((np.arange(CONTEXT) < LATENTS)[None] | np.eye(CONTEXT, dtype=bool)) if variant == "prefix" else sees


@pytest.mark.sweep(1)
@each_variant
def test_future_tokens_do_not_change_past_logits_and_visible_ones_do(variant):
    model = make_model(**VARIANTS[variant])
    params = random_params(model)
    before = np.asarray(apply(model, params, TOKENS))
    for position, sees in enumerate(seen_tokens(variant).T):
        changed = TOKENS.copy()
        changed[:, position] = (changed[:, position] + 1) % VOCABULARY
        after = np.asarray(apply(model, params, changed))
        np.testing.assert_array_equal(before[:, ~sees], after[:, ~sees])
        assert np.abs(before[:, sees] - after[:, sees]).max(axis=-1).min() > 1e-5, position


@pytest.mark.sweep(1)
@each_variant
def test_examples_of_a_batch_do_not_see_each_other(variant):
    model = make_model(**VARIANTS[variant])
    params = random_params(model)
    changed = TOKENS.copy()
    changed[1] = (changed[1] + 1) % VOCABULARY
    before, after = (np.asarray(apply(model, params, tokens)) for tokens in (TOKENS, changed))
    np.testing.assert_array_equal(before[[0, 2]], after[[0, 2]])
    assert np.abs(before[1] - after[1]).max(axis=-1).min() > 1e-4


@pytest.mark.sweep(1)
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


@pytest.mark.sweep(1)
@each_variant
def test_entries_beyond_the_length_of_a_cache_are_not_seen(variant):
    model = make_model(**VARIANTS[variant])
    params = model.decoding_params(random_params(model))
    _, cache = apply(model, params, TOKENS[:, :5], cache=model.empty_cache(BATCH))
    unfilled = (np.arange(CONTEXT) >= 5)[:, None]
    noisy = cache.replace(layers=jax.tree.map(lambda x: np.where(unfilled, np.float32(100.0), x), cache.layers))
    next_token = TOKENS[:, 5:6]
    np.testing.assert_array_equal(
        apply(model, params, next_token, cache=noisy)[0], apply(model, params, next_token, cache=cache)[0]
    )


@pytest.mark.sweep(1)
@each_variant
def test_tokens_that_pad_are_not_read(variant):
    model = make_model(**VARIANTS[variant])
    params = model.decoding_params(random_params(model))
    expected, expected_cache = apply(model, params, TOKENS[:, :5], cache=model.empty_cache(BATCH))
    for padding in (0, 7):
        padded = np.pad(TOKENS[:, :5], [(0, 0), (0, 3)], constant_values=padding)
        logits, cache = apply(model, params, padded, cache=model.empty_cache(BATCH), count=5)
        np.testing.assert_allclose(logits, expected[:, 4:5], atol=1e-5, strict=True)
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
    shared = [[(5, 1, CONTEXT, WIDTH // HEADS)] * 2] * LAYERS
    expected = {"vanilla": keys_and_values, "synthesizer": values, "llama": shared}.get(variant, inputs)
    assert [[x.shape for x in layer] for layer in cache.layers] == expected
    assert dtypes_of(cache) == {jnp.dtype(dtype)}
    assert (model.capacity, int(cache.length)) == (CONTEXT, 0)


@pytest.mark.sweep(1)
@pytest.mark.parametrize(("tied", "width"), [(False, None), (True, 5)])
@pytest.mark.parametrize("use_bias", [False, True])
@pytest.mark.parametrize("variant", [name for name in VARIANTS if name != "llama"])
def test_number_of_parameters_follows_the_formula(variant, tied, use_bias, width):
    model = make_model(**VARIANTS[variant], tie_embeddings=tied, use_bias=use_bias, feed_forward_width=width)
    d, f = WIDTH, width or 4 * WIDTH
    scores = WIDTH // HEADS * CONTEXT if variant == "synthesizer" else 0
    attention = (3 * d * d + scores + (3 * d + CONTEXT if use_bias else 0)) if scores else 4 * d * d + 4 * d * use_bias
    norm = 2 * d if use_bias else d
    block = attention + 2 * norm + 2 * d * f + (f + d) * use_bias
    # The latents, the norms of both memories, and that of the queries on the way up: the assignment has none.
    perceiver = {"prefix": LATENTS * d + norm, "along": LATENTS * d + 2 * norm}.get(variant, 0)
    expected = VOCABULARY * d * (1 if tied else 2) + CONTEXT * d + model.config.num_layers * block + perceiver + norm
    assert sum(leaf.size for leaf in jax.tree.leaves(shapes_of(model))) == expected


@pytest.mark.thorough
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
    exact = np.asarray(apply(exact_model, params, TOKENS))
    assert logits.dtype == jnp.float32
    assert dtypes_of(cache) == {jnp.dtype("bfloat16")}
    np.testing.assert_allclose(logits, exact, atol=0.15)
    assert np.abs(logits - exact).max() > 1e-4  # it did compute in bfloat16


@pytest.mark.thorough
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
    rounded, exact = (np.asarray(apply(each, params, TOKENS)) for each in (model, exact_model))
    assert np.abs(rounded - exact).max() > 1e-4


@each_variant
def test_decoding_params_are_those_of_each_block(variant):
    model = make_model(**VARIANTS[variant])
    params = random_params(model)
    apart = model.decoding_params(params)
    assert set(apart) == set(params) - {"blocks"} | {"block_0", "block_1"}
    again = jax.tree.map(lambda *leaves: np.stack(leaves), apart["block_0"], apart["block_1"])
    jax.tree.map(np.testing.assert_array_equal, again, params["blocks"])


@pytest.mark.parametrize("variant", VARIANTS)
def test_config_of_each_variant_reads_back_equal_from_json(variant):
    config = make_model(**VARIANTS[variant]).config
    assert from_json(json.loads(json.dumps(to_json(config))), ModelConfig) == config


EXPECTED_MAPS = {
    "vanilla": {"blocks": (2, CONTEXT, CONTEXT)},
    "llama": {"blocks": (2, CONTEXT, CONTEXT)},
    "synthesizer": {"blocks": (2, CONTEXT, CONTEXT)},
    "prefix": {
        "down_project": (1, LATENTS, LATENTS),  # no latent sees an input after the last one
        "blocks": (2, LATENTS, LATENTS),
        "up_project": (1, CONTEXT, LATENTS),
    },
    "along": {
        "down_project": (1, LATENTS, CONTEXT),
        "blocks": (2, LATENTS, LATENTS),
        "up_project": (1, CONTEXT, LATENTS + CONTEXT),
    },
}


@functools.cache
def attention_program(model):
    return jax.jit(lambda params: model.attention_maps(params, TOKENS))


def in_window(model, name, sees, layers):
    """What rows of a map see [L, T, S], of the columns that are not later."""
    sees = np.repeat(sees[None], layers, axis=0)
    if name == "blocks":
        for layer in getattr(model.config, "local_layers", ()):
            sees[layer] &= ~np.tril(np.ones_like(sees[layer]), -model.config.local_window)
    return sees


def attention_maps(model, params):
    return jax.device_get(attention_program(model)(params))


@pytest.mark.sweep(1)
@each_variant
def test_attention_maps_are_causal_weights(variant):
    model = make_model(**VARIANTS[variant])
    maps = attention_maps(model, random_params(model))
    assert {name: weights.shape for name, weights in maps.items()} == {
        name: (layers, BATCH, HEADS, *shape) for name, (layers, *shape) in EXPECTED_MAPS[variant].items()
    }
    tokens, latents = np.arange(CONTEXT), np.array(STANDS_AT.get(variant, ()))
    memory = np.concatenate([latents, tokens]) if variant == "along" else latents
    for name, weights in maps.items():
        queries = tokens if name == "up_project" or not latents.size else latents
        keys = {"down_project": tokens, "up_project": memory}.get(name, queries)[: weights.shape[-1]]
        sees = in_window(model, name, keys[None] <= queries[:, None], len(weights))[:, None, None]
        np.testing.assert_allclose(
            weights.sum(axis=-1), np.broadcast_to(sees.any(axis=-1), weights.shape[:-1]), rtol=1e-5
        )
        np.testing.assert_array_equal(weights > 0.0, np.broadcast_to(sees, weights.shape))


@pytest.mark.sweep(1)
@pytest.mark.parametrize("length", [1, 6, CONTEXT])
@each_variant
def test_the_places_of_a_map_say_what_is_a_latent_and_what_its_mask_lets_see(variant, length):
    model = make_model(**VARIANTS[variant])
    places = model.attention_axes(length)
    latents = sum(position < length for position in STANDS_AT.get(variant, ())) or 1  # the first is always there
    expected = {"blocks": (0, 0)}
    if variant in STANDS_AT:
        expected = {"down_project": (latents, 0), "blocks": (latents, latents), "up_project": (0, latents)}
    assert {name: (rows.latents, columns.latents) for name, (rows, columns) in places.items()} == expected
    shapes = jax.eval_shape(model.attention_maps, shapes_of(model), TOKENS[:, :length])
    for name, weights in shapes.items():
        rows, columns = places[name]
        assert rows.see(columns).shape == weights.shape[3:], name
    if length == CONTEXT:
        for name, weights in attention_maps(model, random_params(model)).items():
            rows, columns = places[name]
            sees = in_window(model, name, rows.see(columns), len(weights))[:, None, None]
            np.testing.assert_array_equal(weights > 0.0, np.broadcast_to(sees, weights.shape))


@pytest.mark.sweep(1)
@each_variant
def test_each_attention_map_is_its_own_layers(variant):
    model = make_model(**VARIANTS[variant])
    params = random_params(model)
    before = attention_maps(model, params)
    changed = jax.tree.map(np.copy, params)
    for leaf in jax.tree.leaves(changed["blocks"]["attention"]):
        leaf[1] *= 2.0
    after = attention_maps(model, changed)
    same = {name: [*map(np.array_equal, before[name], after[name])] for name in before}
    expected = {"down_project": [True], "blocks": [True, False], "up_project": [False]}
    assert same == {name: expected[name] for name in before}


@pytest.mark.sweep(1)
@each_variant
def test_attention_maps_are_computed_only_on_request(variant, monkeypatch):
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


@pytest.mark.thorough
@pytest.mark.parametrize("variant", ["synthesizer", "prefix"])
def test_the_initial_loss_is_that_of_a_uniform_guess(variant):
    model = make_model(**VARIANTS[variant], width=32)
    logits = apply(model, initial_params(model, make_key(0)), TOKENS)
    assert abs(float(mean_loss(logits)) - np.log(VOCABULARY)) < 0.02


@pytest.mark.sweep(1)
@pytest.mark.parametrize("changes", [{}, {"tie_embeddings": True, "use_bias": False}], ids=str)
@each_variant
def test_every_parameter_is_described_and_no_other(variant, changes):
    model = make_model(**VARIANTS[variant], **changes)
    found = assert_described(model.config, shapes_of(model))
    assert {path for path, entry in found.items() if entry.head} == (set() if changes else {("head", "kernel")})
    assert found["blocks", "attention", "out", "kernel"].axes == "LOD"
    below = [("tokens", "embedding"), *([] if variant == "llama" else [("positions",)])]
    assert {found[path].depth for path in below} == {"below"}
    assert found["final_norm", "scale"].depth == "above"


@each_variant
def test_a_config_knows_its_maximum_length_and_what_decides_its_function(variant):
    config = make_model(**VARIANTS[variant], residual_dropout_rate=0.1, remat=True).config
    assert config.max_length == CONTEXT
    assert config.architecture() == make_model(**VARIANTS[variant]).config.architecture()
    assert config.architecture() != make_model(**VARIANTS[variant], tie_embeddings=True).config.architecture()
