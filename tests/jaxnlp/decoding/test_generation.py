import functools
import itertools
import re

import jax
import numpy as np
import pytest

from jaxnlp.decoding.generation import SMALLEST_CACHE, Decoder, bucket_length, decoder_of, generate, prepare
from jaxnlp.decoding.sampling import Sampling, sample
from jaxnlp.models import parameter_shapes
from jaxnlp.models.gpt import GPTConfig
from jaxnlp.models.llama import LlamaConfig
from jaxnlp.models.perceiver import PerceiverConfig
from jaxnlp.models.synthesizer import SynthesizerConfig
from jaxnlp.nn.compute import TransformerCompute
from tests.processors import sized

pytestmark = pytest.mark.sweep

GREEDY = Sampling(temperature=0.0)
KEY = jax.random.key(0)


class Counter:
    """A language model with one parameter, its step: after token t comes t + step, modulo 10. Counts its traces."""

    def __init__(self, capacity):
        self.traced = []
        self.decoder = Decoder(self.prepare, self.read, lambda batch: (), capacity)

    def prepare(self, params):
        return {"step": params["step_of_training"]}

    def read(self, params, tokens, cache, count):
        self.traced.append(tokens.shape)
        return jax.nn.one_hot((tokens + params["step"]) % 10, 10), cache

    def continue_from(self, prompt, count, *, step=1, **settings):
        tokens = generate(
            self.decoder,
            {"step_of_training": np.int32(step)},
            np.asarray(prompt, np.int32),
            max_new_tokens=count,
            key=KEY,
            **({"sampling": GREEDY} | settings),
        )
        return [token.tolist() for token in tokens]


VARIANTS = {
    "vanilla": {},
    "llama": {"kind": LlamaConfig},
    "synthesizer": {"kind": SynthesizerConfig},
    "prefix": {"kind": PerceiverConfig, "num_layers": 3, "num_latents": 12},
    "along": {"kind": PerceiverConfig, "num_layers": 3, "num_latents": 6, "latent_placement": "along"},
}


def tiny_model(context, variant="vanilla"):
    settings = {
        "num_layers": 1,
        "num_heads": 2,
        "width": 8,
        "use_bias": False,
        "compute": TransformerCompute(scan_layers=True),
    }
    settings |= VARIANTS[variant]
    return settings.pop("kind", GPTConfig)(context_length=context, **settings).build(sized(11))


@functools.cache
def tiny_gpt(context, variant="vanilla"):
    """Parameters, decoder and full forward pass of a GPT with weights of ordinary size."""
    model = tiny_model(context, variant)
    shapes = parameter_shapes(model, np.zeros((1, 1), np.int32))
    generator = np.random.default_rng(1)
    params = jax.tree.map(lambda leaf: generator.normal(size=leaf.shape).astype(np.float32), shapes)
    decoder = decoder_of(model)
    return params, decoder, jax.jit(lambda tokens: model.apply({"params": params}, tokens))


def continue_prompt(context, prompt, count, *, key=KEY, sampling=GREEDY, variant="vanilla"):
    params, decoder, _ = tiny_gpt(context, variant)
    tokens = list(generate(decoder, params, prompt, max_new_tokens=count, key=key, sampling=sampling))
    return np.stack(tokens, axis=1)


def continue_naively(context, prompt, count, *, key=KEY, sampling=GREEDY, variant="vanilla"):
    """No cache: the whole window is read for each token, and it shrinks to half a context when it grows beyond one."""
    _, _, forward = tiny_gpt(context, variant)
    text, window = prompt, prompt
    for number in range(count):
        padded = np.pad(window, [(0, 0), (0, context - window.shape[1])])
        logits = np.asarray(forward(padded))[:, window.shape[1] - 1]
        token = np.asarray(sample(logits, jax.random.fold_in(key, number), sampling))[:, None]
        text, window = np.concatenate([text, token], axis=1), np.concatenate([window, token], axis=1)
        if window.shape[1] > context:
            window = text[:, -max(1, context // 2) :]
    return text[:, prompt.shape[1] :]


def random_prompt(batch, length):
    return np.random.default_rng(2).integers(0, 11, size=(batch, length)).astype(np.int32)


@pytest.mark.sweep(1)
@pytest.mark.parametrize("length", [1, 5, 19])
@pytest.mark.parametrize("variant", VARIANTS)
def test_greedy_generation_equals_reading_the_whole_text_for_each_token(variant, length):
    prompt = random_prompt(3, length)
    found = continue_prompt(20, prompt, 20 - length, variant=variant)
    np.testing.assert_array_equal(found, continue_naively(20, prompt, 20 - length, variant=variant))
    assert length > 1 or len(np.unique(found)) > 3  # no model that repeats itself


@pytest.mark.thorough
@pytest.mark.parametrize(("context", "length"), [(20, 5), (20, 20), (7, 3), (1, 1)])
def test_beyond_the_context_the_newest_half_is_read_again(context, length):
    prompt = random_prompt(2, length)
    count = 2 * context + 3
    np.testing.assert_array_equal(continue_prompt(context, prompt, count), continue_naively(context, prompt, count))


@pytest.mark.sweep(1)
@pytest.mark.parametrize("variant", VARIANTS)
def test_the_newest_half_is_read_again_whatever_the_cache_keeps(variant):
    prompt = random_prompt(2, 5)
    found = continue_prompt(20, prompt, 30, variant=variant)
    np.testing.assert_array_equal(found, continue_naively(20, prompt, 30, variant=variant))


@pytest.mark.thorough
def test_token_n_is_drawn_with_the_nth_key():
    prompt, sampling, key = random_prompt(3, 4), Sampling(temperature=0.9, top_k=8), jax.random.key(5)
    found = continue_prompt(20, prompt, 30, key=key, sampling=sampling)
    np.testing.assert_array_equal(found, continue_naively(20, prompt, 30, key=key, sampling=sampling))


@pytest.mark.thorough
def test_same_key_gives_the_same_tokens_and_another_key_others():
    prompt, sampling = random_prompt(3, 4), Sampling(temperature=0.9, top_k=8)
    first, again, other = (
        continue_prompt(20, prompt, 12, key=jax.random.key(seed), sampling=sampling) for seed in (5, 5, 6)
    )
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


def test_rows_of_a_batch_are_continued_like_each_one_separately():
    prompt = random_prompt(3, 5)
    together = continue_prompt(20, prompt, 30)
    for row in range(3):
        np.testing.assert_array_equal(together[row : row + 1], continue_prompt(20, prompt[row : row + 1], 30))


def test_continues_each_row_from_its_last_token():
    found = Counter(capacity=32).continue_from([[5, 1], [0, 8]], 4)
    assert found == [[2, 9], [3, 0], [4, 1], [5, 2]]


def test_yields_one_int32_token_a_row_and_as_many_as_asked_for():
    counter = Counter(capacity=8)
    prompt = np.zeros((3, 2), np.int32)
    params = {"step_of_training": np.int32(1)}
    tokens = list(generate(counter.decoder, params, prompt, max_new_tokens=11, key=KEY, sampling=GREEDY))
    assert [(token.shape, token.dtype) for token in tokens] == [((3,), np.int32)] * 11


@pytest.mark.thorough
def test_draws_from_the_whole_distribution_by_default():
    tokens = Counter(capacity=64).continue_from([[0]], 40, sampling=None)
    differences = {(after - before) % 10 for (before,), (after,) in itertools.pairwise(tokens)}
    assert len(differences) > 3  # greedily it is always 1


def test_compiles_once_for_decoding_and_once_a_bucket_of_prompts():
    counter = Counter(capacity=64)
    for length in (1, 2, 15, 16, 17, 30, 32):
        assert len(counter.continue_from([[3] * length], 3)) == 3
    assert sorted(counter.traced) == [(1, 1), (1, 16), (1, 32)]
    counter.continue_from([[3] * 60], 100)  # reads the half, 32, again twice
    assert sorted(counter.traced) == [(1, 1), (1, 16), (1, 32), (1, 64)]


def test_parameters_that_need_no_preparation_are_not_copied():
    params, decoder, _ = tiny_gpt(6)
    separate = prepare(decoder, params)
    assert separate is not params
    given, found = (
        [leaf.unsafe_buffer_pointer() for leaf in jax.tree.leaves(tree)]
        for tree in (separate, prepare(decoder, separate))
    )
    assert found == given


@pytest.mark.thorough
def test_a_prompt_has_the_logits_of_its_last_token_alone():
    params, decoder, _ = tiny_gpt(6)
    prompt = random_prompt(2, 5)
    every, _ = decoder.read(prepare(decoder, params), prompt, decoder.empty_cache(2), None)
    newest, _ = decoder.read(prepare(decoder, params), np.pad(prompt, [(0, 0), (0, 1)]), decoder.empty_cache(2), 5)
    np.testing.assert_allclose(newest, every[:, 4:], atol=1e-5, strict=True)


@pytest.mark.thorough
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_cache_need_not_be_larger_than_the_sequence(variant):
    params, decoder, _ = tiny_gpt(600, variant)
    model, prompt = tiny_model(600, variant), random_prompt(2, 3)
    small = decoder_of(model, 10)
    if variant in ("vanilla", "llama"):
        assert decoder.capacity == 600
        assert small.capacity == SMALLEST_CACHE
        assert decoder_of(model, 300) is decoder_of(model, 512)
        assert decoder_of(model, 9_000).capacity == 600
    whole, found = (
        np.stack(list(generate(one, params, prompt, max_new_tokens=4, key=KEY, sampling=GREEDY)))
        for one in (decoder, small)
    )
    np.testing.assert_array_equal(whole, found)


def test_other_parameters_need_no_compilation():
    counter = Counter(capacity=64)
    assert counter.continue_from([[3]], 3, step=1) == [[4], [5], [6]]
    assert counter.continue_from([[3]], 3, step=2) == [[5], [7], [9]]
    assert sorted(counter.traced) == [(1, 1), (1, 16)]


def test_the_first_token_comes_before_the_second_is_computed():
    counter = Counter(capacity=64)
    tokens = generate(
        counter.decoder,
        {"step_of_training": np.int32(1)},
        np.zeros((1, 3), np.int32),
        max_new_tokens=9,
        key=KEY,
        sampling=GREEDY,
    )
    next(tokens)
    assert counter.traced == [(1, 16)]
    next(tokens)
    assert counter.traced == [(1, 16), (1, 1)]


@pytest.mark.parametrize("capacity", [1, 10, 16, 50, 64, 1000])
def test_buckets_hold_their_prompts_and_are_few(capacity):
    buckets = {length: bucket_length(length, capacity) for length in range(1, capacity + 1)}
    sizes = {16, 32, 64, 128, 256, 512, capacity}
    for length, bucket in buckets.items():
        assert bucket == min(size for size in sizes if length <= size <= capacity)
    assert len(set(buckets.values())) <= 1 + max(0, int(np.ceil(np.log2(capacity / 16))))


@pytest.mark.parametrize(
    ("shape", "count", "message"),
    [
        ((2, 0), 1, "the prompt is empty; the model needs at least one token to continue"),
        ((2, 9), 1, "the prompt has 9 tokens, but the model's context has only 8; shorten it"),
        ((3,), 1, "expected a prompt [B, N] of int, got (3,) of int32"),
        ((2, 3), 0, "max_new_tokens must be at least 1, got 0"),
        ((2, 3), 2.5, "max_new_tokens must be a whole number, got 2.5"),
    ],
    ids=str,
)
def test_what_cannot_be_continued_is_refused_at_the_call(shape, count, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        generate(Counter(capacity=8).decoder, {}, np.zeros(shape, np.int32), max_new_tokens=count, key=KEY)


@pytest.mark.parametrize("token", [-1, 11, 1000])
def test_tokens_that_the_model_has_not_are_refused_with_their_place(token):
    params, decoder, _ = tiny_gpt(8)
    prompt = np.array([[0, 10], [token, 3]], np.int32)
    with pytest.raises(ValueError, match=f"tokens are 0 to 10, but the prompt has {token} in row 1, position 0"):
        generate(decoder, params, prompt, max_new_tokens=1, key=KEY)


def test_a_prompt_as_long_as_the_context_can_be_continued():
    assert Counter(capacity=8).continue_from([[1] * 7 + [4]], 3) == [[5], [6], [7]]


def test_generation_ends_when_every_row_has_stopped():
    counter = Counter(capacity=32)
    assert counter.continue_from([[5], [7]], 20, stop=9) == [[6, 8], [7, 9], [8, 0], [9, 1]]
    assert counter.continue_from([[8], [8]], 20, stop=9) == [[9, 9]]
    assert len(counter.continue_from([[5], [7]], 2, stop=9)) == 2
    assert len(counter.continue_from([[5], [7]], 20)) == 20


def test_without_an_end_of_the_context_nothing_is_read_twice():
    counter = Counter(capacity=None)
    assert counter.continue_from([[3] * 40], 100) == [[n % 10] for n in range(4, 104)]
    assert sorted(counter.traced) == [(1, 1), (1, 64)]
    assert [bucket_length(length, None) for length in (1, 16, 17, 64, 1000)] == [16, 16, 32, 64, 1024]


@pytest.mark.parametrize("length", [1, 16, 21])
def test_a_recurrent_model_generates_as_if_it_read_the_whole_text_for_each_token(recurrent, length):
    prompt = np.random.default_rng(2).integers(0, recurrent.size, (3, length)).astype(np.int32)
    steps = generate(recurrent.decoder, recurrent.params, prompt, max_new_tokens=30, key=KEY, sampling=GREEDY)
    text = prompt
    for token in steps:
        np.testing.assert_array_equal(token, recurrent.forward(text)[:, -1].argmax(axis=-1))
        text = np.concatenate([text, token[:, None]], axis=1)
    assert text.shape == (3, length + 30)
    assert len(np.unique(text[:, length:])) > 3  # no model that repeats itself
