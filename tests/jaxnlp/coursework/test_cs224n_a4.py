"""The assignment's sanity checks: five sources, embeddings and states 3 wide."""

import re

import jax
import numpy as np
import pytest
import scipy.special

from jaxnlp.coursework.cs224n_a4 import NMT
from tests.coursework_runs import SIZE, translator

LENGTHS = [6, 5, 4, 2, 1]
draw = np.random.default_rng(0)
SOURCE = np.where(np.arange(6)[:, None] < LENGTHS, draw.integers(4, 8, (6, 5)), 0)
TARGET = draw.integers(2, 6, (4, 5))


@pytest.fixture(scope="module")
def nmt():
    return NMT(translator())


@pytest.fixture(scope="module")
def encoded(nmt):
    return nmt.encode(SOURCE, LENGTHS)


@pytest.fixture(scope="module")
def masks(nmt, encoded):
    return nmt.generate_sent_masks(encoded[0], LENGTHS)


def test_masks_are_one_at_padding(masks):
    np.testing.assert_array_equal(masks, np.arange(6)[None] >= np.array(LENGTHS)[:, None])
    assert masks.dtype == np.float32


def test_encode_gives_outputs_of_both_directions_and_the_first_state_whatever_the_padding_is(nmt, encoded):
    hiddens, states = encoded
    assert hiddens.shape == (5, 6, 2 * SIZE)
    assert [state.shape for state in states] == [(5, SIZE), (5, SIZE)]
    for row, length in enumerate(LENGTHS):
        assert not np.asarray(hiddens[row, length:]).any()
    other = np.where(SOURCE == 0, 7, SOURCE)
    jax.tree.map(np.testing.assert_array_equal, nmt.encode(other, LENGTHS), encoded)


@pytest.mark.thorough
def test_decode_gives_what_the_model_gives_the_output_layer(nmt, encoded, masks):
    run, (hiddens, states) = translator(), encoded
    found = nmt.decode(hiddens, masks, states, TARGET)
    assert found.shape == (3, 5, SIZE)
    mask = masks == 0
    apply = jax.jit(run.model.apply, static_argnames="return_hidden")
    expected = apply({"params": run.params}, SOURCE.T, TARGET.T[:, :-1], mask, return_hidden=True)
    np.testing.assert_allclose(found, np.swapaxes(expected, 0, 1), atol=1e-5)


@pytest.mark.thorough
def test_steps_are_those_of_decode_and_hide_padding(nmt, encoded, masks):
    (hiddens, state), run = encoded, translator()
    projected = nmt.att_projection(hiddens)
    assert projected.shape == (5, 6, SIZE)
    expected, before = nmt.decode(hiddens, masks, state, TARGET), np.zeros((5, SIZE), np.float32)
    for t in range(3):
        embedded = run.params["target_tokens"]["embedding"][TARGET[t]]
        state, before, scores = nmt.step(np.concatenate([embedded, before], 1), state, hiddens, projected, masks)
        np.testing.assert_allclose(before, expected[t], atol=1e-5)
        np.testing.assert_array_equal(np.isneginf(scores), masks == 1)


def test_a_step_is_that_of_the_assignments_equations(nmt, encoded, masks):
    (hiddens, (h, c)), params = jax.device_get(encoded), jax.device_get(translator().params)
    ybar = draw.normal(size=(5, 2 * SIZE)).astype(np.float32)
    projected = np.asarray(nmt.att_projection(hiddens))
    np.testing.assert_allclose(projected, hiddens @ params["attention_keys"]["kernel"], rtol=1e-5)
    inputs = np.concatenate([params["decoder_input"]["kernel"], params["decoder_kernel"][:SIZE]])
    gates = np.einsum("bd,dgk->gbk", ybar, inputs) + np.einsum("bd,dgk->gbk", h, params["decoder_kernel"][SIZE:])
    i, f, g, o = gates + params["decoder_input"]["bias"][:, None]
    c = scipy.special.expit(f) * c + scipy.special.expit(i) * np.tanh(g)
    h = scipy.special.expit(o) * np.tanh(c)
    scores = np.where(masks == 1, -np.inf, np.einsum("bsk,bk->bs", projected, h))
    context = np.einsum("bs,bse->be", scipy.special.softmax(scores, axis=1), hiddens)
    combined = np.tanh(np.concatenate([context, h], axis=1) @ params["output_kernel"])
    found = nmt.step(ybar, encoded[1], hiddens, projected, masks)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), found, ((h, c), combined, scores))
    whole = nmt.step(ybar, encoded[1], hiddens, projected, None)
    assert np.isfinite(whole[2]).all()


def test_beams_are_sorted_and_have_the_scores_that_forward_gives_them(nmt):
    words = ["▁two", "▁ten", "▁unknown"]
    found = nmt.beam_search(words, beam_size=4, max_decoding_time_step=3)
    finished = [one for one in found if len(one.value) < 3]
    assert finished
    assert len(found) > len(finished)  # the others are truncated
    assert max(len(one.value) for one in found) == 3
    assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)
    targets = [["<s>", *one.value, "</s>"] for one in finished]
    np.testing.assert_allclose(nmt.forward([words] * len(targets), targets), [one.score for one in finished], atol=1e-4)


@pytest.mark.thorough
def test_the_best_beam_is_the_runs_translation(nmt):
    run = translator()
    for text in ("one two", "six", "ten ten one"):
        best, *_ = nmt.beam_search(run.processor.source.pieces(text), beam_size=4)
        expected = run.translate(text, num_beams=4, length_penalty=0.0)
        assert "".join(best.value).replace("▁", " ").strip() == expected


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda nmt, *_: nmt.encode(SOURCE[0], LENGTHS), "expected source_padded, time last, as tokens [B, T] of int"),
        (lambda nmt, *_: nmt.encode(SOURCE + 4, LENGTHS), "the model's tokens are 0 to 7, but source_padded"),
        (lambda nmt, *_: nmt.encode(SOURCE, [7, 5, 4, 2, 1]), "expected lengths [b] of int from 1 to 6, got [7, 5"),
        (
            lambda nmt, *_: nmt.encode(SOURCE, LENGTHS[:4]),
            "expected 4 sources, one for each length, got source_padded (6, 5)",
        ),
        (lambda nmt, e, m: nmt.decode(e[0], m, e[1], TARGET + 1), "the model's tokens are 0 to 5, but target_padded"),
        (lambda nmt, e, m: nmt.step(e[1][0], e[1], e[0], e[0], m), "expected Ybar_t [b, e + h] with e = 3"),
        (
            lambda nmt, e, m: nmt.decode(e[0][:, :, 1:], m, e[1], TARGET),
            "expected enc_hiddens [b, src_len, 2h] with 2h",
        ),
        (
            lambda nmt, e, m: nmt.decode(e[0], m, e[1], TARGET[:, :2]),
            "expected states [b, h], (2, 3), got hidden (5, 3)",
        ),
        (lambda nmt, e, m: nmt.decode(e[0], m[:, 1:], e[1], TARGET), "with b = 5, got enc_hiddens (5, 6, 6), proj"),
        (lambda nmt, *_: nmt.beam_search("two"), "expected a list of subwords, got the text 'two'"),
        (lambda nmt, *_: nmt.beam_search(["▁two"], 0), "num_beams must be at least 1, got 0"),
        (lambda nmt, *_: nmt.forward([["▁two"]], [["▁zwei"]]), "target 0 must start with <s> and end with </s>"),
        (lambda nmt, *_: nmt.forward([["▁two"]], []), "expected a target for each source, got 1 sources and 0"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(nmt, encoded, masks, call, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        call(nmt, encoded, masks)


def test_other_translators_are_refused():
    with pytest.raises(ValueError, match=r"AttentionLSTM with model.attention multiplicative"):
        NMT(translator(attention="additive"))
