import dataclasses
import itertools

import numpy as np
import pytest

from jaxnlp.saving.serialization import processor_from_json, processor_to_json
from jaxnlp.text.question_contexts import AnswerSpan, ContextQuestion, QuestionProcessor
from jaxnlp.text.wordpiece import CLS, SEP, SPECIAL, WordPieceVocabulary

WORDS = ["where", "was", "ann", "born", "in", "oslo", "lim", "##a", "?", ".", "x"]
VOCABULARY = WordPieceVocabulary.of_pieces([*SPECIAL, *WORDS])
PROCESSOR = QuestionProcessor(VOCABULARY, 16, 2)
QUESTION = "Where was Ann born?"


def windows(context, question=QUESTION, processor=PROCESSOR):
    return processor.windows([ContextQuestion("", question, context)])


def tokens(window):
    return VOCABULARY.tokens(window.tokens)


def span(context, text):
    return AnswerSpan(context.index(text), context.index(text) + len(text), text)


def test_a_short_context_is_one_window_of_question_and_context():
    (window,) = windows("Ann was born in Lima.")
    assert tokens(window) == [
        CLS,
        "where",
        "was",
        "ann",
        "born",
        "?",
        SEP,
        *["ann", "was", "born", "in", "lim", "##a", "."],
        SEP,
    ]
    assert window.segments.tolist() == [0] * 7 + [1] * 8
    assert window.offsets[:7].tolist() == [[0, 0]] * 7
    assert window.offsets[10:14].tolist() == [[13, 15], [16, 19], [19, 20], [20, 21]]
    # Lima is one word: an answer may begin with lim and end with ##a.
    assert window.edges[11:13].tolist() == [[True, False], [False, True]]
    assert window.edges[0].all()
    assert not window.edges[[*range(1, 7), 14]].any()


def test_the_windows_of_a_long_context_have_all_its_tokens_and_share_some():
    context = " ".join(["x"] * 20 + ["Oslo"])
    found = windows(context)
    assert all(len(window.tokens) <= 16 for window in found)
    places = [window.offsets[window.segments == 1][:-1, 0].tolist() for window in found]
    assert sorted({place for some in places for place in some}) == [2 * index for index in range(21)]
    assert all(first[-2:] == second[:2] for first, second in itertools.pairwise(places))
    answer = [span(context, "Oslo")]
    assert [window.tokens_of(answer) for window in found[:-1]] == [(0, 0)] * (len(found) - 1)
    first, last = found[-1].tokens_of(answer)
    assert tokens(found[-1])[first : last + 1] == ["oslo"]


@pytest.mark.parametrize(
    ("answers", "expected"),
    [(["Lima"], "lim ##a"), (["im"], "lim ##a"), (["in Lima", "born"], "in lim ##a"), ([], CLS)],
    ids=["words", "a part of a word is the whole word", "the first of several", "none"],
)
def test_an_answer_is_given_by_its_first_and_last_token(answers, expected):
    context = "Ann was born in Lima."
    (window,) = windows(context)
    first, last = window.tokens_of([span(context, answer) for answer in answers])
    assert tokens(window)[first : last + 1] == expected.split()


def test_an_answer_that_a_window_cuts_is_in_none():
    context = " ".join(["x"] * 5 + ["Ann was born in Oslo"] + ["x"] * 5)
    found = windows(context, processor=dataclasses.replace(PROCESSOR, max_length=12, overlap=0))
    assert len(found) > 2
    assert {window.tokens_of([span(context, "Ann was born in Oslo")]) for window in found} == {(0, 0)}


def test_no_answer_begins_or_ends_within_a_word_that_a_window_cuts():
    context = " ".join(["lima"] * 9)
    found = windows(context, "?", dataclasses.replace(PROCESSOR, max_length=9, overlap=0))
    assert [tokens(window)[3:-1] for window in found[:2]] == [
        ["lim", "##a"] * 2 + ["lim"],
        ["##a", "lim"] * 2 + ["##a"],
    ]
    assert found[0].edges[3:-1].tolist() == [[True, False], [False, True]] * 2 + [[True, False]]
    assert found[1].edges[3:-1].tolist() == [[False, True], [True, False]] * 2 + [[False, True]]
    cut = [AnswerSpan(10, 12, "li"), AnswerSpan(13, 14, "a")]
    assert [window.tokens_of([answer]) for answer in cut for window in found[:2]] == [(0, 0)] * 4


@pytest.mark.parametrize("context", ["Limá", "Lima\u0301", "Lima\u0301.", "Lima\u0301 x"])
def test_answers_have_the_accents_that_the_tokenizer_removes(context):
    (window,) = windows(context)
    word = context.split()[0].removesuffix(".")
    assert window.tokens_of([span(context, word)]) == (7, 8)
    assert context[window.offsets[7, 0] : window.offsets[8, 1]] == word


def test_a_long_question_is_truncated_with_a_note_and_leaves_room_for_the_context(caplog):
    (window, *_) = windows("Ann was born in Lima.", question="where was " * 40)
    assert "questions that are longer than 8 tokens and truncated: 1 of 1, such as where was where" in caplog.text
    assert tokens(window)[1:10] == [*(["where", "was"] * 4), SEP]
    assert (window.offsets[:, 1] > 0).sum() >= 3


def test_questions_are_trimmed_and_a_context_without_tokens_has_one_window():
    assert tokens(windows("Oslo", question="  Where? ")[0]) == [CLS, "where", "?", SEP, "oslo", SEP]
    (window,) = windows("\u200b")
    assert not window.edges[1:].any()


def test_a_batch_is_padded_and_its_padding_has_only_the_first_token():
    found = windows("Ann was born in Lima.")
    batch = PROCESSOR.batch(found, 2, 16)
    assert {name: x.shape for name, x in batch.items()} == {
        "tokens": (2, 16),
        "segments": (2, 16),
        "attention_mask": (2, 16),
        "answer_mask": (2, 16, 2),
        "loss_mask": (2,),
    }
    assert batch["loss_mask"].tolist() == [True, False]
    assert batch["attention_mask"].sum(axis=1).tolist() == [15, 1]
    np.testing.assert_array_equal(batch["answer_mask"][0, :15], found[0].edges)
    assert batch["answer_mask"][1].sum() == 2


def test_a_processor_is_saved_and_equal_by_value():
    assert processor_from_json(processor_to_json(PROCESSOR)) == PROCESSOR
    assert dataclasses.replace(PROCESSOR, overlap=1) != PROCESSOR


@pytest.mark.parametrize(
    ("fields", "words"), [({"max_length": 7}, "max_length must be at least 8"), ({"overlap": 5}, "from 0 to 4")]
)
def test_windows_without_room_are_refused(fields, words):
    with pytest.raises(ValueError, match=words):
        dataclasses.replace(PROCESSOR, **fields)
