"""Beam search whose continuations begin with a given token, end with a stop token at their maximum length, or never
have some tokens."""

import itertools

import jax
import numpy as np
import pytest

from jaxnlp.decoding.beam import beam_search
from jaxnlp.text.generation_constraints import GenerationConstraints

PROMPT = np.array([[1, 3, 0], [2, 2, 1], [0, 1, 1]], np.int32)
STOP = 2
LIMITS = [3, 2, 3]


def continuations(recurrent, prompt, most, first, forced_stop, never):
    """Of one prompt: {tokens: their log-probability}, where a forced token has probability 1."""
    found = {}
    for length in range(1, most + 1):
        for tokens in itertools.product(range(recurrent.size), repeat=length):
            if STOP in tokens[:-1] or (length < most and tokens[-1] != STOP):
                continue
            if (first is not None and tokens[0] != first) or set(never) & set(tokens):
                continue
            if forced_stop and length == most and tokens[-1] != STOP:
                continue
            rows = jax.nn.log_softmax(recurrent.forward(np.array([[*prompt, *tokens]], np.int32)))[0]
            scores = [float(rows[len(prompt) - 1 + place, token]) for place, token in enumerate(tokens)]
            if first is not None:
                scores[0] = 0.0
            if forced_stop and length == most:
                scores[-1] = 0.0
            found[tokens] = sum(scores)
    return sorted(found.items(), key=lambda one: -one[1])


@pytest.mark.parametrize(
    ("first", "forced_stop", "never"), [(3, True, (1,)), (3, False, ()), (None, True, ()), (None, False, (3, 0))]
)
def test_wide_enough_it_ranks_all_sequences_with_the_forced_and_without_the_excluded_tokens_as_brute_force_does(
    recurrent, first, forced_stop, never
):
    width = recurrent.size**3
    result = beam_search(
        recurrent.decoder,
        recurrent.params,
        PROMPT,
        num_beams=width,
        max_new_tokens=3,
        stop=STOP,
        constraints=GenerationConstraints(forced_bos=first, forced_eos=forced_stop, suppressed_tokens=never),
        max_lengths=np.array(LIMITS),
    )
    for row, (prompt, most) in enumerate(zip(PROMPT, LIMITS, strict=True)):
        expected = continuations(recurrent, prompt, most, first, forced_stop, never)
        lengths = result.lengths[row, : len(expected)]
        found = [tuple(tokens[:length].tolist()) for tokens, length in zip(result.tokens[row], lengths, strict=False)]
        assert found == [tokens for tokens, _ in expected]
        np.testing.assert_allclose(result.scores[row, : len(expected)], [score for _, score in expected], atol=1e-5)
        assert set(result.scores[row, len(expected) :].tolist()) <= {-np.inf}


def test_a_forced_stop_needs_a_stop(recurrent):
    forced = GenerationConstraints(forced_eos=True)
    with pytest.raises(ValueError, match="forced_eos needs a stop token"):
        beam_search(recurrent.decoder, recurrent.params, PROMPT, num_beams=1, max_new_tokens=2, constraints=forced)
