"""Attention maps of decoders against their equations in NumPy; test_decoder.py tests the layers after the first."""

import dataclasses

import jax
import numpy as np
import pytest
from scipy.special import softmax

from jaxnlp.tasks import Trained
from jaxnlp.tasks.language_model import LanguageModel
from jaxnlp.text.characters import CharacterVocabulary
from tests.jaxnlp.models.gpt_helpers import (
    CONTEXT,
    HEADS,
    LAYERS,
    VARIANTS,
    VOCABULARY,
    WIDTH,
    make_model,
    random_params,
)

TEXT = "ab \nc\ta"
LENGTH, K = len(TEXT), WIDTH // HEADS


def trained_of(variant):
    vocabulary = CharacterVocabulary.of("abc \n\t", special="0123456")
    assert vocabulary.size == VOCABULARY
    model = make_model(**VARIANTS[variant])
    return Trained(LanguageModel(), model, random_params(model), vocabulary, name=variant)


def normalised(x, norm):
    centred = x - x.mean(axis=-1, keepdims=True)
    return centred / np.sqrt(x.var(axis=-1, keepdims=True) + 1e-5) * norm["scale"] + norm["bias"]


def projected(x, layer):
    """[T, D] through a kernel [D, ...]."""
    return np.tensordot(x, layer["kernel"], axes=1) + layer["bias"]


def weights_of(q, k, visible):
    """[H, T, S] from q [T, H, K] and k [S, H, K]."""
    scores = np.einsum("thk,shk->hts", q, k) / np.sqrt(K)
    return softmax(np.where(visible, scores, -np.inf), axis=-1)


def scaled(x, norm):
    """Divided by the root mean square."""
    return x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + 1e-6) * norm["scale"]


def rotated(x):
    """[T, H, K], as complex numbers."""
    angles = np.arange(LENGTH)[:, None] * 10_000.0 ** (-np.arange(K // 2) * 2 / K)
    turned = (x[..., : K // 2] + 1j * x[..., K // 2 :]) * np.exp(1j * angles)[:, None]
    return np.concatenate([turned.real, turned.imag], axis=-1)


def first_weights_of_llama(x, block):
    attention, x = block["attention"], scaled(x, block["attention_norm"])
    q, k = projected(x, attention["q"]), projected(x, attention["kv"])[:, 0]
    q, k = rotated(scaled(q, attention["q_norm"])), rotated(scaled(k, attention["k_norm"]))
    return weights_of(q, np.repeat(k, HEADS, axis=1), np.tri(LENGTH, dtype=bool))


def first_weights(trained, variant):
    """The weights of what reads the embeddings."""
    params = jax.tree.map(np.asarray, trained.params)
    x = params["tokens"]["embedding"][trained.processor.encode(TEXT)]
    if variant == "llama":
        return first_weights_of_llama(x, jax.tree.map(lambda leaf: leaf[0], params["blocks"]))
    x = x + params["positions"][:LENGTH]
    if variant in ("vanilla", "synthesizer"):
        block = jax.tree.map(lambda leaf: leaf[0], params["blocks"])
        attention, x = block["attention"], normalised(x, block["attention_norm"])
        if variant == "vanilla":
            qkv = projected(x, attention["qkv"])
            return weights_of(qkv[:, 0], qkv[:, 1], np.tri(LENGTH, dtype=bool))
        z = np.maximum(projected(x, attention["zv"])[:, 0], 0.0)
        scores = np.einsum("thk,ks->hts", z, attention["kernel"])[:, :, :LENGTH] + attention["bias"][:LENGTH]
        return softmax(np.where(np.tri(LENGTH, dtype=bool), scores, -np.inf), axis=-1)
    down = params["down_project"]
    latents = down["latents"][0]
    q = projected(normalised(latents, down["query_norm"]), down["attention"]["q"])
    k = projected(normalised(x, down["memory_norm"]), down["attention"]["kv"])[:, 0]
    ends = np.arange(4) if variant == "prefix" else np.array([1, 4, 6, 9])
    ends = ends[ends < LENGTH]
    seen = ends.max() + 1
    return weights_of(q[: len(ends)], k[:seen], np.arange(seen)[None] <= ends[:, None])


@pytest.mark.sweep(1)
@pytest.mark.parametrize("variant", VARIANTS)
def test_the_maps_are_those_of_the_equations(variant):
    trained = trained_of(variant)
    found = trained.attend(TEXT)
    first, rest = found.maps[0], found.maps[1:]
    np.testing.assert_allclose(first.weights[0], first_weights(trained, variant), atol=1e-5)
    assert first.weights[0].std() > 0.1
    assert (found.title, found.truncated) == (TEXT, False)
    assert [maps.name for maps in rest] == (["blocks", "up project"] if variant in ("prefix", "along") else [])
    for maps in found.maps:
        assert maps.weights.shape[2:] == (len(maps.rows), len(maps.columns))
        sees = np.array(np.broadcast_to(maps.visible, maps.weights.shape))
        for layer in getattr(trained.model.config, "local_layers", ()):
            sees[layer] &= ~np.tri(LENGTH, k=-trained.model.config.local_window, dtype=bool)
        np.testing.assert_array_equal(maps.weights > 0.0, sees)


@pytest.mark.thorough
def test_the_maps_of_all_layers_are_in_order():
    model = make_model(num_layers=12)
    trained = dataclasses.replace(trained_of("vanilla"), model=model, params=random_params(model))
    before = trained.attend("ab").maps[0].weights
    assert before.shape == (12, HEADS, 2, 2)
    expected = jax.jit(model.attention_maps)(trained.params, trained.processor.encode("ab")[None])["blocks"]
    np.testing.assert_allclose(before, np.asarray(expected)[:, 0], atol=1e-6)


@pytest.mark.thorough
def test_rows_and_columns_have_names_and_white_space_has_signs():
    tokens = ["a", "b", "\u2423", "\u23ce", "c", "\u21e5", "a"]
    (maps,) = trained_of("vanilla").attend(TEXT).maps
    assert maps.name == ""
    assert maps.rows == maps.columns == tokens
    down, blocks, up = trained_of("along").attend(TEXT).maps
    latents = ["latent 1", "latent 2", "latent 3"]
    assert (down.rows, down.columns) == (latents, tokens)
    assert (blocks.rows, blocks.columns) == (latents, latents)
    assert (up.rows, up.columns) == (tokens, latents + tokens)
    places = tuple(range(1, len(tokens) + 1))
    assert maps.row_positions == maps.column_positions == places
    assert (down.row_positions, down.column_positions) == ((None,) * 3, places)
    assert (up.row_positions, up.column_positions) == (places, (None, None, None, *places))


def test_a_text_is_truncated_to_the_context_or_less():
    trained = trained_of("vanilla")
    whole, short = trained.attend("ab" * CONTEXT), trained.attend("ab" * CONTEXT, max_length=3)
    assert (len(whole.maps[0].rows), whole.truncated) == (CONTEXT, True)
    assert (short.maps[0].rows, short.maps[0].weights.shape[:2], short.truncated) == (
        list("aba"),
        (LAYERS, HEADS),
        True,
    )
    with pytest.raises(ValueError, match="max_length must be at least 1, got 0"):
        trained.attend("ab", max_length=0)
    assert trained.attend("a\r\nb").maps[0].rows == ["a", "\u23ce", "b"]
    with pytest.raises(ValueError, match="the text has no tokens"):
        trained.attend("")
