import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy

from jaxnlp.decoding import beam
from jaxnlp.decoding.beam import beam_search
from jaxnlp.decoding.completion import complete
from jaxnlp.decoding.generation import Decoder, decoder_of, pad_to_bucket
from jaxnlp.models import parameter_shapes
from jaxnlp.models.gpt import GPTConfig
from jaxnlp.models.perceiver import PerceiverConfig
from jaxnlp.models.recurrent_lm import RecurrentLMConfig
from jaxnlp.nn.compute import TransformerCompute
from jaxnlp.text.generation_constraints import GenerationConstraints
from tests.processors import sized

pytestmark = pytest.mark.sweep

SIZE, CONTEXT = 4, 24
PROMPT = np.array([[1, 3, 0], [2, 2, 1], [0, 1, 1]], np.int32)


def log_softmax(logits):
    return scipy.special.log_softmax(np.asarray(logits, np.float64), axis=-1)


TRANSFORMER = {"num_heads": 2, "width": 8, "context_length": CONTEXT, "compute": TransformerCompute(scan_layers=True)}
CONFIGS = {
    "gpt": GPTConfig(num_layers=1, use_bias=False, **TRANSFORMER),
    "perceiver with a prefix": PerceiverConfig(num_layers=3, num_latents=12, **TRANSFORMER),
    "perceiver along": PerceiverConfig(num_layers=3, num_latents=6, latent_placement="along", **TRANSFORMER),
    "lstm": RecurrentLMConfig(embedding_width=6, widths=(6,)),
}
every_model = pytest.mark.parametrize("model", [*CONFIGS, "recurrent"], indirect=True)


@functools.cache
def tiny(kind):
    """Parameters, decoder, log-probabilities of what follows, [B, T, V], by a pass without cache; and V."""
    model = CONFIGS[kind].build(sized(SIZE))
    shapes = parameter_shapes(model, np.zeros((1, 1), np.int32))
    generator = np.random.default_rng(1)
    params = jax.tree.map(lambda leaf: 0.5 * generator.normal(size=leaf.shape).astype(np.float32), shapes)
    forward = jax.jit(lambda tokens: model.apply({"params": params}, tokens))

    def log_probabilities(tokens):
        padded = np.pad(tokens, [(0, 0), (0, CONTEXT - tokens.shape[1])])
        return log_softmax(forward(padded)[:, : tokens.shape[1]])

    return params, decoder_of(model), log_probabilities, SIZE


@pytest.fixture(params=["gpt", "recurrent"])
def model(request, recurrent):
    """Parameters, decoder, log-probabilities, V; by default of a cache with a capacity, and of one without."""
    if request.param != "recurrent":
        return tiny(request.param)
    return recurrent.params, recurrent.decoder, lambda tokens: log_softmax(recurrent.forward(tokens)), recurrent.size


def penalty(length, alpha):
    return ((5 + length) / 6) ** alpha


def every_continuation(log_probabilities, size, prompt, most, stop):
    """Of one prompt [N]: {tokens: their log-probability}, for all that end with the stop or have `most` tokens."""
    found, prefixes = {}, {(): 0.0}
    for _ in range(most):
        texts = np.stack([np.concatenate([prompt, np.array(prefix, np.int32)]) for prefix in prefixes])
        following = log_probabilities(texts)[:, -1]
        longer = {
            (*prefix, token): score + row[token]
            for (prefix, score), row in zip(prefixes.items(), following, strict=True)
            for token in range(size)
        }
        found |= {tokens: score for tokens, score in longer.items() if tokens[-1] == stop}
        prefixes = {tokens: score for tokens, score in longer.items() if tokens[-1] != stop}
    return found | prefixes


def search_by_hand(log_probabilities, size, prompt, num_beams, most, stop, alpha, never=(), least=0, summed=True):
    """Beam search over Python lists, which never ends early: [(tokens, score)], best first. Args: summed: whether the
    probabilities include those of tokens that may not follow."""
    running, ended = [((), 0.0)], []
    for done in range(most):
        longer = []
        for prefix, score in running:
            row = np.array(log_probabilities(np.array([[*prompt, *prefix]], np.int32))[0, -1])
            row[[*never, *([stop] if done < least else [])]] = -np.inf
            row -= 0.0 if summed else np.logaddexp.reduce(row)
            longer += [((*prefix, token), score + row[token]) for token in range(size)]
        longer.sort(key=lambda one: -one[1])
        ended += [one for one in longer[:num_beams] if one[0][-1] == stop]
        running = [one for one in longer if one[0][-1] != stop][:num_beams]
    ranked = [(tokens, score / penalty(len(tokens), alpha)) for tokens, score in ended + running]
    return sorted(ranked, key=lambda one: -one[1])[:num_beams]


def found_rows(result):
    """[(tokens, score)] of each row, best first, without padding."""
    assert (result.tokens.dtype, result.lengths.dtype, result.scores.dtype) == (np.int32, np.int32, np.float32)
    return [
        [(tuple(t[:length].tolist()), float(score)) for t, length, score in zip(*row, strict=True)]
        for row in zip(*map(np.asarray, result), strict=True)
    ]


def assert_same(found, expected):
    assert [tokens for tokens, _ in found] == [tokens for tokens, _ in expected]
    np.testing.assert_allclose([score for _, score in found], [score for _, score in expected], atol=1e-5)


@pytest.mark.thorough
@pytest.mark.parametrize("stop", [None, 2])
def test_wide_enough_it_ranks_all_sequences_as_brute_force_does(model, stop):
    params, decoder, log_probabilities, size = model
    most, width = 3, size**3
    for alpha in (0.0, 0.6, 2.0):
        settings = {"num_beams": width, "max_new_tokens": most, "stop": stop, "length_penalty": alpha}
        result = beam_search(decoder, params, PROMPT, **settings)
        for prompt, found in zip(PROMPT, found_rows(result), strict=True):
            scores = every_continuation(log_probabilities, size, prompt, most, stop)
            expected = [(tokens, score / penalty(len(tokens), alpha)) for tokens, score in scores.items()]
            assert len(expected) <= width
            assert_same(found[: len(expected)], sorted(expected, key=lambda one: -one[1]))
            assert found[len(expected) :] == [((), -np.inf)] * (width - len(expected))


@pytest.mark.sweep(1)
@pytest.mark.parametrize(("num_beams", "stop"), [(1, 3), (2, 1), (3, None), (3, 0), (7, 3)])
def test_equals_a_search_over_lists_that_never_ends_early(model, num_beams, stop):
    params, decoder, log_probabilities, size = model
    for alpha in (0.0, 1.0, 3.0):
        settings = {"num_beams": num_beams, "max_new_tokens": 9, "stop": stop, "length_penalty": alpha}
        result = beam_search(decoder, params, PROMPT, **settings)
        for prompt, found in zip(PROMPT, found_rows(result), strict=True):
            assert_same(found, search_by_hand(log_probabilities, size, prompt, num_beams, 9, stop, alpha))


@pytest.mark.sweep(1)
@pytest.mark.parametrize(("least", "summed", "num_beams"), [(4, False, 3), (20, True, 2)])
def test_targets_have_a_minimum_length_and_probabilities_may_be_renormalised(model, least, summed, num_beams):
    params, decoder, log_probabilities, size = model
    settings = {"num_beams": num_beams, "max_new_tokens": 9, "stop": 3, "length_penalty": 1.0}
    constraints = GenerationConstraints(suppressed_tokens=(0,), min_length=least, renormalize=not summed)
    result = beam_search(decoder, params, PROMPT, **settings, constraints=constraints)
    for prompt, found in zip(PROMPT, found_rows(result), strict=True):
        expected = search_by_hand(log_probabilities, size, prompt, num_beams, 9, 3, 1.0, (0,), least, summed)
        assert_same(found, expected)
        assert all(3 not in tokens[:least] for tokens, _ in found)


@pytest.mark.parametrize("stop", [None, 2])
def test_each_row_has_a_maximum_length_of_its_own(model, stop):
    params, decoder, log_probabilities, size = model
    limits = np.array([3, 1, 2])
    settings = {"num_beams": size**3, "max_new_tokens": 3, "stop": stop, "length_penalty": 0.6}
    result = beam_search(decoder, params, PROMPT, max_lengths=limits, **settings)
    for prompt, limit, found in zip(PROMPT, limits, found_rows(result), strict=True):
        scores = every_continuation(log_probabilities, size, prompt, limit, stop)
        expected = [(tokens, score / penalty(len(tokens), 0.6)) for tokens, score in scores.items()]
        assert_same(found[: len(expected)], sorted(expected, key=lambda one: -one[1]))
        assert {score for _, score in found[len(expected) :]} <= {-np.inf}


@pytest.mark.sweep(1)
@pytest.mark.parametrize(("num_beams", "stop"), [(1, 3), (2, 1), (3, None), (3, 0), (7, 3)])
def test_a_maximum_length_of_each_row_equals_a_search_for_that_row(model, num_beams, stop):
    params, decoder, log_probabilities, size = model
    limits = np.array([4, 8, 1])
    settings = {"num_beams": num_beams, "max_new_tokens": 9, "stop": stop, "length_penalty": 1.0}
    result = beam_search(decoder, params, PROMPT, max_lengths=limits, **settings)
    for prompt, limit, found in zip(PROMPT, limits, found_rows(result), strict=True):
        expected = search_by_hand(log_probabilities, size, prompt, num_beams, limit, stop, 1.0)
        assert_same(found[: len(expected)], expected)


@pytest.mark.sweep(1)
def test_a_finished_hypothesis_stays_unchanged_or_is_replaced_by_a_better_one(model):
    params, decoder, _, _ = model
    rules = beam._Rules(num_beams=3, max_new_tokens=10, stop=1, no_repeat_ngram=0, n_best=3)
    params, earlier = decoder.prepare(params), PROMPT[:, :-1]

    def finished(search):
        return [[one for one in row if one[1] > -np.inf] for row in found_rows(search.finished)]

    replaced = stopped_early = 0
    for alpha in (0.0, 3.0):
        settings = beam._Settings(alpha, 5.0, None, np.array([10, 6, 10], np.int32))
        cache = beam._read(None, decoder, params, pad_to_bucket(decoder, earlier), earlier.shape[1], None)
        search, over = beam._start(None, decoder, rules, PROMPT[:, -1], cache), np.array(False)
        for length in range(1, 11):
            before, was_over = finished(search), bool(over.all())
            search, over = beam._advance(None, decoder, rules, params, search, PROMPT[:, -1], length, settings)
            for old, new in zip(before, finished(search), strict=True):
                lost = [one for one in old if one not in new]
                gained = [one for one in new if one not in old]
                assert all(better > worse for _, better in gained for _, worse in lost)
                assert [one for one in old if one in new] == [one for one in new if one in old]
                assert not (was_over and gained)  # a search that stops early returns the same
                replaced += len(lost)
            stopped_early += was_over
    assert replaced
    assert stopped_early


@pytest.mark.thorough
@every_model
def test_scores_are_the_models_own_and_padding_is_the_stop(model):
    params, decoder, log_probabilities, _ = model
    result = beam_search(decoder, params, PROMPT, num_beams=4, max_new_tokens=10, stop=2, length_penalty=0.7)
    ends = set()
    for row, number in np.ndindex(3, 4):
        tokens, length = np.asarray(result.tokens[row, number]), int(result.lengths[row, number])
        text = np.concatenate([PROMPT[row], tokens[:length]])[None]
        each = log_probabilities(text)[0, PROMPT.shape[1] - 1 : -1]
        score = each[np.arange(length), tokens[:length]].sum() / penalty(length, 0.7)
        np.testing.assert_allclose(result.scores[row, number], score, atol=1e-5)
        assert 2 not in tokens[: length - 1]
        assert length == 10 or tokens[length - 1] == 2
        assert (tokens[length:] == 2).all()
        ends.add(length)
    assert len(ends) > 1
    assert (np.diff(result.scores, axis=1) <= 0.0).all()


@pytest.mark.thorough
@every_model
@pytest.mark.parametrize("stop", [None, 0, 2])
def test_one_beam_decodes_greedily(model, stop):
    params, decoder, _, _ = model
    result = beam_search(decoder, params, PROMPT, num_beams=1, max_new_tokens=12, stop=stop)
    rows = complete(decoder, params, list(PROMPT), stop=-1 if stop is None else stop, max_new_tokens=12)
    for row, tokens in enumerate(rows):
        assert result.lengths[row, 0] == min(12, len(tokens) + 1)
        np.testing.assert_array_equal(result.tokens[row, 0, : len(tokens)], tokens)
        np.testing.assert_array_equal(result.tokens[row, 0, len(tokens) :], -1 if stop is None else stop)


@pytest.mark.thorough
def test_rows_of_a_batch_are_searched_like_each_one_separately(model):
    params, decoder, _, _ = model
    search = functools.partial(beam_search, decoder, params, num_beams=7, max_new_tokens=9, stop=3, length_penalty=0.5)
    together = found_rows(search(PROMPT))
    for row in range(3):
        (alone,) = found_rows(search(PROMPT[row : row + 1]))
        assert_same(together[row], alone)


def table_decoder(table, *, capacity=None, reads=None):
    """Of a model that sees only the newest token: table [V, V] holds the probabilities of the next one."""
    with np.errstate(divide="ignore"):
        logits = np.log(np.float32(table))

    def read(params, tokens, cache, count):
        if reads is not None:
            jax.debug.callback(lambda: reads.append(tokens.shape))
        return jnp.asarray(logits)[tokens], cache

    return Decoder(lambda params: params, read, lambda batch: (), capacity)


# After 0 come 1 or 2; a stop, 3, is likely at once after 1, and after 2 sure to come, but late.
TABLE = [[0.0, 0.6, 0.4, 0.0], [0.2, 0.3, 0.0, 0.5], [0.0, 0.0, 0.0, 1.0], [0.0, 0.0, 0.0, 1.0]]


@pytest.mark.thorough
def test_a_wider_beam_finds_a_better_continuation_than_greedy_decoding():
    prompt = np.zeros((1, 1), np.int32)
    narrow, wide = (
        found_rows(beam_search(table_decoder(TABLE), {}, prompt, num_beams=n, max_new_tokens=6, stop=3))[0]
        for n in (1, 2)
    )
    assert_same(narrow, [((1, 3), np.log(0.6 * 0.5))])
    assert_same(wide, [((2, 3), np.log(0.4)), ((1, 3), np.log(0.3))])


def test_length_penalty_changes_the_ranking_as_the_formula_says():
    # Stops at once with probability 0.3; otherwise after exactly five tokens more, all sure.
    chain = np.zeros((8, 8))
    chain[0, [7, 1]] = 0.3, 0.7 * 0.4
    chain[0, 6] = 1.0 - chain[0].sum()
    for token in range(1, 5):
        chain[token, token + 1] = 1.0
    chain[5, 7] = chain[6, 6] = chain[7, 7] = 1.0
    short, long = np.log(0.3), np.log(0.28)
    decoder = table_decoder(chain)
    turn = np.log(long / short) / np.log(penalty(6, 1.0) / penalty(1, 1.0))
    for alpha, winner in (
        (0.0, (7,)),
        (turn - 0.01, (7,)),
        (turn + 0.01, (1, 2, 3, 4, 5, 7)),
        (2.0, (1, 2, 3, 4, 5, 7)),
    ):
        result = beam_search(
            decoder,
            {},
            np.zeros((1, 1), np.int32),
            num_beams=3,
            max_new_tokens=7,
            stop=7,
            length_penalty=alpha,
        )
        found = dict(found_rows(result)[0])
        np.testing.assert_allclose(found[(7,)], short, atol=1e-6)
        np.testing.assert_allclose(found[(1, 2, 3, 4, 5, 7)], long / penalty(6, alpha), atol=1e-6)
        assert max((7,), (1, 2, 3, 4, 5, 7), key=found.__getitem__) == winner
        assert next(tokens for tokens in found if tokens[-1] == 7) == winner  # they come best first


@functools.cache
def coin():
    """A decoder of two equally likely tokens, and the list of its reads."""
    reads = []
    return table_decoder([[0.5, 0.5], [0.5, 0.5]], reads=reads), reads


@pytest.mark.parametrize(("alpha", "limit", "steps"), [(0.0, None, 1), (1.0, None, 5), (1.0, 3, 2), (8.0, 3, 3)])
def test_the_search_stops_as_soon_as_no_running_hypothesis_can_win(alpha, limit, steps):
    decoder, reads = coin()
    reads.clear()
    limits = None if limit is None else np.array([limit])
    settings = {"num_beams": 1, "max_new_tokens": 20, "stop": 0, "length_penalty": alpha, "max_lengths": limits}
    result = beam_search(decoder, {}, np.ones((1, 1), np.int32), **settings)
    jax.effects_barrier()
    # A hypothesis that stops at its first token scores log 0.5. The running one has n log 0.5 after n tokens. At best
    # that is divided by the penalty of 20 tokens, (25 / 6)^alpha, or of a limit of 3, (8 / 6)^alpha.
    assert len(reads) == steps
    best = ((1, 1, 0), 3.0 * np.log(0.5) / penalty(3, alpha)) if alpha == 8.0 else ((0,), np.log(0.5))
    assert_same(found_rows(result)[0], [best])


@pytest.mark.thorough
def test_fewer_results_are_the_first_of_all(model):
    params, decoder, _, _ = model
    settings = {"num_beams": 7, "max_new_tokens": 9, "stop": 3, "length_penalty": 1.0}
    every = found_rows(beam_search(decoder, params, PROMPT, **settings))
    for n_best in (1, 2):
        few = found_rows(beam_search(decoder, params, PROMPT, n_best=n_best, **settings))
        for found, expected in zip(few, every, strict=True):
            assert_same(found, expected[:n_best])


@pytest.mark.thorough
def test_fewer_results_need_fewer_steps():
    steps, reads = [], []
    chain = table_decoder([[1.0, 0.0, 0.0], [0.6, 0.4, 0.0], [0.0, 0.0, 1.0]], reads=reads)
    for n_best in (1, 2, 3):
        reads.clear()
        beam_search(chain, {}, np.ones((1, 1), np.int32), num_beams=3, max_new_tokens=9, stop=0, n_best=n_best)
        jax.effects_barrier()
        steps.append(len(reads))
    # The n-th to end is n tokens long; from then on what runs is less likely.
    assert steps == [1, 2, 3]


def test_equal_beams_are_one_hypothesis_and_ties_go_to_the_lower_token():
    result = beam_search(table_decoder(np.full((3, 3), 1.0 / 3.0)), {}, PROMPT % 3, num_beams=5, max_new_tokens=2)
    expected = [((0, 0), 0), ((0, 1), 0), ((0, 2), 0), ((1, 0), 0), ((1, 1), 0)]
    for row in found_rows(result):
        assert_same(row, [(tokens, 2.0 * np.log(1.0 / 3.0)) for tokens, _ in expected])


@pytest.mark.thorough
def test_more_beams_than_sequences_leave_the_last_ones_blank():
    result = beam_search(table_decoder(TABLE), {}, np.zeros((2, 1), np.int32), num_beams=9, max_new_tokens=2, stop=3)
    np.testing.assert_array_equal(result.lengths, [[2] * 4 + [0] * 5] * 2)
    np.testing.assert_array_equal(result.scores[:, 4:], -np.inf)
    np.testing.assert_array_equal(result.tokens[:, 4:], 3)
    unstopped = beam_search(table_decoder(TABLE), {}, np.zeros((2, 1), np.int32), num_beams=9, max_new_tokens=1)
    np.testing.assert_array_equal(unstopped.lengths, [[1] * 2 + [0] * 7] * 2)
    np.testing.assert_array_equal(unstopped.tokens[0, :, 0], [1, 2] + [-1] * 7)


def test_scalars_of_a_cache_stay_and_its_arrays_follow_their_beams(recurrent):
    seen = []

    def read(params, tokens, cache, count):
        jax.debug.callback(
            lambda h, copy, scalar: seen.append((np.asarray(h), np.asarray(copy), float(scalar))), *cache
        )
        return recurrent.decoder.read(params, tokens, cache, count)

    decoder = Decoder(recurrent.decoder.prepare, read, recurrent.decoder.empty_cache, None)
    beam_search(decoder, recurrent.params, PROMPT, num_beams=2, max_new_tokens=4)
    jax.effects_barrier()
    assert [(h.shape, scalar) for h, _, scalar in seen] == [((3, 6), 7.0)] + [((6, 6), 7.0)] * 4
    for h, copy, _ in seen:
        np.testing.assert_array_equal(h, copy)


@pytest.mark.thorough
def test_compiles_once_a_bucket_and_once_for_all_further_tokens():
    traced = []

    def read(params, tokens, cache, count):
        traced.append(tokens.shape)
        return jax.nn.one_hot(tokens, 5), cache

    decoder = Decoder(lambda params: params, read, lambda batch: jnp.zeros((batch, 2)), None)
    for length, alpha in ((1, 0.0), (3, 0.0), (9, 0.5), (17, 1), (20, 2.0)):
        beam_search(decoder, {}, np.zeros((2, length), np.int32), num_beams=3, max_new_tokens=6, length_penalty=alpha)
    beam_search(decoder, {}, np.zeros((2, 4), np.int32), num_beams=3, max_new_tokens=6, max_lengths=np.array([2, 6]))
    assert sorted(traced) == [(2, 16), (2, 32), (6, 1)]


@pytest.mark.thorough
def test_the_context_may_be_filled_to_the_last_token():
    params, decoder, log_probabilities, _ = tiny("gpt")
    most = CONTEXT - PROMPT.shape[1] + 1
    result = beam_search(decoder, params, PROMPT, num_beams=2, max_new_tokens=most)
    for row in range(3):
        tokens = np.asarray(result.tokens[row, 0])
        each = log_probabilities(np.concatenate([PROMPT[row], tokens[:-1]])[None])[0, PROMPT.shape[1] - 1 :]
        np.testing.assert_allclose(result.scores[row, 0], each[np.arange(most), tokens].sum(), atol=1e-4)


@pytest.mark.parametrize(
    ("shape", "changes", "message"),
    [
        (
            (2, 3),
            {"max_new_tokens": 7},
            "the prompt, of length 3, and max_new_tokens, 7, need a context of 9, but the model's context has only 8",
        ),
        ((2, 9), {}, "the prompt has 9 tokens, but the model's context has only 8; shorten it"),
        ((2, 0), {}, "the prompt is empty"),
        ((3,), {}, "expected a prompt [B, N] of int, got (3,) of int32"),
        ((2, 3), {"max_new_tokens": 0}, "max_new_tokens must be at least 1, got 0"),
        ((2, 3), {"num_beams": 0}, "num_beams must be at least 1, got 0"),
        ((2, 3), {"n_best": 3}, "n_best must be from 1 to num_beams, which is 2, got 3"),
        ((2, 3), {"max_lengths": np.ones(3, int)}, "expected max_lengths [2] of int, got (3,) of int64"),
        ((2, 3), {"max_lengths": np.ones(2)}, "expected max_lengths [2] of int, got (2,) of float64"),
        ((2, 3), {"max_lengths": np.array([0, 1])}, "max_lengths must be in 1 to max_new_tokens, 2, got 0 to 1"),
        ((2, 3), {"max_lengths": np.array([3, 1])}, "max_lengths must be in 1 to max_new_tokens, 2, got 1 to 3"),
        ((2, 3), {"length_penalty": -0.1}, "length_penalty must be at least 0 and finite, got -0.1"),
        ((2, 3), {"length_offset": -1.0}, "length_offset must be at least 0 and finite, got -1.0"),
        ((2, 3), {"length_penalty": float("nan")}, "length_penalty must be at least 0 and finite, got nan"),
    ],
    ids=str,
)
def test_what_cannot_be_searched_is_refused_with_its_numbers(shape, changes, message):
    decoder = table_decoder(TABLE, capacity=8)
    with pytest.raises(ValueError, match=re.escape(message)):
        beam_search(decoder, {}, np.zeros(shape, np.int32), **({"num_beams": 2, "max_new_tokens": 2} | changes))
