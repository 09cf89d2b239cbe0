import math

import numpy as np
import pytest

from jaxnlp.ops.answer_spans import BestSpans
from jaxnlp.tasks.extractive_qa.answers import Answer, Candidates, ask, find_answers, merge_windows
from jaxnlp.text.question_contexts import ContextQuestion

CONTEXT = "Ann was born in Lima."
QUESTION = "Where was Ann born?"


def test_an_answer_is_a_part_of_its_context(bert):
    answers = bert.ask(QUESTION, CONTEXT, n_best=5)
    assert len({answer.text for answer in answers}) == 5
    for answer in answers:
        assert CONTEXT[answer.start : answer.stop] == answer.text
        assert 0.0 <= answer.confidence <= 1.0
        assert "Lim" not in answer.text or "Lima" in answer.text  # whole words
    assert bert.ask(QUESTION, CONTEXT) == answers[0]


def test_answers_do_not_depend_on_the_other_questions_or_on_how_they_are_given(bert):
    questions, contexts = [QUESTION, "Where?", " ", QUESTION], [CONTEXT, CONTEXT * 8, CONTEXT, ""]
    found = bert.ask(questions, contexts)
    for question, context, answer in zip(questions, contexts, found, strict=True):
        alone = bert.ask(question, context)
        assert (alone.text, alone.start) == (answer.text, answer.start)
        np.testing.assert_allclose(alone.log_prob, answer.log_prob, rtol=1e-4)
    assert [answer.text for answer in found[2:]] == ["", ""]
    assert bert.ask([QUESTION, "Where?"], CONTEXT)[0] == bert.ask(QUESTION, CONTEXT)
    assert bert.ask(questions, iter(contexts)) == found
    assert bert.ask([], CONTEXT) == []


def test_a_higher_threshold_gives_more_answers(bert):
    assert bert.ask(QUESTION, CONTEXT, no_answer_threshold=1e3).text
    assert bert.ask(QUESTION, CONTEXT, no_answer_threshold=-1e3).text == ""
    (found,) = find_answers(bert, [ContextQuestion("", QUESTION, CONTEXT)])
    assert bert.ask(QUESTION, CONTEXT, no_answer_threshold=found.margin).text == found.answers[0].text
    assert not bert.ask(QUESTION, CONTEXT, no_answer_threshold=np.nextafter(found.margin, -math.inf)).text


def test_the_windows_of_a_context_share_their_answers(bert):
    """The best span of any window wins, and no answer counts as in the window where it is least probable."""
    question = ContextQuestion("", QUESTION, CONTEXT)
    (window,) = bert.processor.windows([question])
    lima, born = np.int32([[11, 12]]), np.int32([[9, 9]])
    rows = [
        BestSpans(np.concatenate([lima, born]), np.log([0.5, 0.1]), np.log(0.2)),
        BestSpans(np.concatenate([born, lima]), np.log([0.3, 0.2]), np.log(0.9)),
        BestSpans(np.concatenate([born, lima]), np.array([-np.inf, -np.inf]), np.log(0.95)),
    ]
    (found,) = merge_windows([question], [window] * 3, rows)
    assert [(answer.text, round(answer.confidence, 6)) for answer in found.answers] == [("Lima", 0.5), ("born", 0.3)]
    assert found.no_answer.confidence == pytest.approx(0.2)
    assert found.margin == pytest.approx(math.log(0.2 / 0.5))
    assert [answer.text for answer in found.ranked(0.0)] == ["Lima", "born", ""]
    assert [answer.text for answer in found.ranked(-0.5)] == ["Lima", "", "born"]


def test_a_context_without_words_has_no_answer(bert):
    assert bert.ask(QUESTION, "\u200b").text == ""
    assert Candidates((), Answer("", 0, 0, -1.0)).margin == math.inf


def test_programs_are_compiled_ahead(bert):
    bert.warm_up("ask")
    assert bert.ask(QUESTION, CONTEXT) == ask(bert, QUESTION, CONTEXT)


@pytest.mark.parametrize(
    ("arguments", "options", "words"),
    [
        (([QUESTION, QUESTION], [CONTEXT]), {}, "one for each of the 2 questions; got 1"),
        (([QUESTION, 3], CONTEXT), {}, "expected questions, got int"),
        (([QUESTION], [None]), {}, "expected contexts, got NoneType"),
        ((QUESTION, None), {}, "ask: expected one context, or a list of them, got NoneType"),
        ((QUESTION, {CONTEXT: 1}), {}, "ask: expected one context, or a list of them, got dict"),
        ((QUESTION, "Lim\ud800"), {}, "expected contexts of characters"),
        ((QUESTION, CONTEXT), {"n_best": 0}, "n_best must be at least 1"),
        ((QUESTION, CONTEXT), {"no_answer_threshold": float("nan")}, "no_answer_threshold must be a finite number"),
    ],
)
def test_wrong_arguments_are_refused(bert, arguments, options, words):
    with pytest.raises(ValueError, match=words):
        bert.ask(*arguments, **options)
