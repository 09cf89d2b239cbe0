"""The birth-place assignment from end to end, on invented people: pretrain, fine-tune, evaluate."""

import pytest

from data.invented_people import invent, write
from data.names import NamesPretraining, NamesQuestions
from jaxnlp.models.gpt import GPTConfig
from train import evaluate
from train.config import TrainConfig
from train.optimizer import OptimizerConfig

PEOPLE = invent(0, train=60, dev=20, test=5)


def config(data, steps, *, learning_rate, **changes):
    return TrainConfig(
        **{
            "recipe": "names",
            "data": data,
            "model": GPTConfig(num_layers=2, num_heads=4, width=64, context_length=96, scan_layers=True),
            "optimizer": OptimizerConfig(name="muon", learning_rate=learning_rate, beta2=0.99, warmup_steps=20),
            "total_steps": steps,
            "evaluate_every_steps": steps,
            "checkpoint_every_steps": steps,
            "log_every_steps": 100,
        }
        | changes
    )


@pytest.fixture(scope="module")
def runs(tmp_path_factory, quick_fit):
    """Folders: of the people, of a pretrained model, of one fine-tuned from it, and of one that was not pretrained."""
    folder = tmp_path_factory.mktemp("names")
    write(PEOPLE, folder / "people")
    sizes = {"path": str(folder / "people"), "held_out": 10, "sequence_length": 96, "batch_size": 32}
    documents = NamesPretraining(
        corruption="facts", place_fraction=0.9, question_fraction=0.2, facts_length=56, largest_shift=12, **sizes
    )
    questions = NamesQuestions(**sizes)
    quick_fit(config(documents, 700, learning_rate=1e-2), folder / "pretrained")
    few = {"learning_rate": 1e-3, "best_by": "exact_match"}
    quick_fit(config(questions, 30, init_from=str(folder / "pretrained"), **few), folder / "fine_tuned")
    quick_fit(config(questions, 200, learning_rate=1e-2), folder / "from_nothing")
    return folder


def exact_match(run, split="dev"):
    return evaluate.score(evaluate.Evaluate(run, split=split)).values["exact_match"]


def test_pretraining_beats_no_pretraining_by_a_wide_margin_on_held_out_names(runs):
    with_it, questions = exact_match(runs / "fine_tuned")
    without, _ = exact_match(runs / "from_nothing")
    assert questions == 20
    assert with_it > without + 0.3
