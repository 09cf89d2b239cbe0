import re

import pytest

from jaxnlp.coursework import require_run
from jaxnlp.coursework.cmu_hw4p1 import generation, prediction
from jaxnlp.coursework.cs224n_a3 import ParserModel
from jaxnlp.coursework.cs224n_a4 import NMT
from jaxnlp.coursework.cs224n_a5 import attention, evaluate
from jaxnlp.tasks.parsing import Parsing
from tests.coursework_runs import language_model, parser


def test_a_run_of_the_task_is_the_result():
    assert require_run(parser(), Parsing, "ud_parser") is parser()


@pytest.mark.parametrize(
    ("call", "task", "recipe"),
    [
        (lambda run: prediction([[0]], run), "RecurrentLanguageModel", "lstm_lm_hw4"),
        (lambda run: generation([[0]], 1, run), "RecurrentLanguageModel", "lstm_lm_hw4"),
        (lambda run: ParserModel(run, []), "Parsing", "ud_parser"),
        (NMT, "Translation", "chr_en_lstm"),
        (lambda run: evaluate(run, "dev.tsv", "out.txt"), "QuestionAnswering", "names_finetune"),
        (lambda run: attention(run, 0), "QuestionAnswering", "names_finetune"),
    ],
    ids=["prediction", "generation", "parser", "translator", "places", "attention"],
)
def test_runs_of_other_tasks_are_refused_with_the_recipe_of_the_assignment(call, task, recipe):
    expected = f"expected a run of the task {task}, such as jaxnlp.load_run(FOLDER) of the recipe {recipe}, got"
    other = parser() if task != "Parsing" else language_model()
    with pytest.raises(ValueError, match=re.escape(f"{expected} {other.name} of the task {type(other.task).__name__}")):
        call(other)
    with pytest.raises(ValueError, match=re.escape(f"{expected} 'runs/mine'")):
        call("runs/mine")
