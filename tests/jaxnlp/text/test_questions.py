from jaxnlp.text.questions import Question


def test_a_question_without_an_answer_differs_from_one_with_an_empty_answer():
    assert Question("a?").answer is None
    assert Question("a?") != Question("a?", "")
    assert len({Question("a?", "b"), Question("a?", "b"), Question("a?")}) == 2
