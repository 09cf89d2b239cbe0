"""The birth-place assignment from end to end, on invented people: pretrain, fine-tune, evaluate."""

import functools
import json

import jax
import pytest

from data.invented_people import invent, write
from data.names import NamesPretraining, NamesQuestions
from jaxnlp.__main__ import main
from jaxnlp.__main__ import main as jaxnlp_main
from jaxnlp.models.gpt import GPTConfig
from jaxnlp.nn.compute import TransformerCompute
from jaxnlp.runs import load_run
from jaxnlp.tasks.question_answering import QuestionAnswering, evaluators
from jaxnlp.tasks.question_answering.evaluators import ConstantAnswer, Validation
from train import evaluate, loop
from train.cli.command_line import RunOptions, parse
from train.config import TrainConfig, update
from train.optimizer import Muon
from train.optimizer.schedules import Cosine
from train.parallel import make_parallel
from train.report import write_report

pytestmark = pytest.mark.thorough

PEOPLE = invent(0, train=70, dev=30, test=5)


def config(data, steps, *, learning_rate, num_layers=2, width=64, **changes):
    return TrainConfig(
        **{
            "recipe": "names",
            "data": data,
            "model": GPTConfig(
                num_layers=num_layers,
                num_heads=4,
                width=width,
                context_length=96,
                compute=TransformerCompute(scan_layers=True),
            ),
            "task": QuestionAnswering(),
            "optimizer": Muon(learning_rate=learning_rate, beta2=0.99, schedule=Cosine(warmup=20)),
            "total_steps": steps,
            "evaluate_every_steps": steps,
            "checkpoint_every_steps": steps,
            "log_every_steps": 100,
        }
        | changes
    )


def on_one_device(quick_fit, *arguments):
    """Eight devices on two cores would wait for each other in each step."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "make_parallel", lambda mode, **_: make_parallel(mode, jax.devices()[:1]))
        return quick_fit(*arguments)


def in_optimised_programs(quick_fit, *arguments):
    """For hundreds of steps; fewer take less time than XLA's optimisations."""
    jax.config.update("jax_disable_most_optimizations", False)
    try:
        return on_one_device(quick_fit, *arguments)
    finally:
        jax.config.update("jax_disable_most_optimizations", True)


def data_of(people, folder):
    """Fields of the data: a folder, which gets the files of the assignment, and sizes."""
    write(people, folder)
    return {"path": str(folder), "held_out": 10, "sequence_length": 96, "batch_size": 32}


@pytest.fixture(scope="module")
def people(tmp_path_factory):
    """Fields of the data."""
    return data_of(PEOPLE, tmp_path_factory.mktemp("people"))


@pytest.fixture(scope="module")
def run(people, tmp_path_factory, quick_fit):
    """A small model that has memorised some of the questions."""
    folder = tmp_path_factory.mktemp("names") / "run"
    few = {"learning_rate": 1e-2, "num_layers": 1, "width": 32, "evaluate_every_steps": 15, "keep_checkpoints": 1}
    on_one_device(quick_fit, config(NamesQuestions(**people), 60, best_metric="exact_match", **few), folder)
    return folder


def score(run, evaluator=None, **options):
    return evaluate.score(run, evaluator or Validation(), evaluate.Options(**options)).evaluation


def test_pretraining_improves_the_answers_about_other_people_by_a_wide_margin(quick_fit, tmp_path):
    people = data_of(invent(0, train=40, dev=20, test=5), tmp_path / "people")
    documents = NamesPretraining(
        corruption="facts", place_fraction=0.9, question_fraction=0.2, facts_length=56, max_left_padding=12, **people
    )
    questions, fit = NamesQuestions(**people), functools.partial(in_optimised_programs, quick_fit)
    fit(config(documents, 500, learning_rate=1e-2), tmp_path / "pretrained")
    few = {"learning_rate": 1e-3, "best_metric": "exact_match", "evaluate_every_steps": 5}
    fit(config(questions, 20, init_from=str(tmp_path / "pretrained"), **few), tmp_path / "fine_tuned")
    fit(config(questions, 100, learning_rate=1e-2), tmp_path / "from_nothing")
    pretrained, count = score(tmp_path / "fine_tuned", split="dev").metrics["exact_match"]
    without, _ = score(tmp_path / "from_nothing", split="dev").metrics["exact_match"]
    assert count == 20
    assert pretrained > without + 0.25


def test_some_training_questions_are_answered(run):
    """Without a right answer the tests below would compare zeros."""
    assert score(run, split="train").metrics["exact_match"].value > 0.05


def test_answers_are_written_one_a_line_and_only_those_with_targets_are_scored(run, tmp_path, capsys):
    files = {split: tmp_path / split / "answers.txt" for split in ("dev", "test")}
    for split, path in files.items():
        assert jaxnlp_main(["evaluate", str(run), "--split", split, "--predictions", str(path)]) == 0
    printed = capsys.readouterr().out
    lines = files["dev"].read_text(encoding="utf-8").splitlines()
    right = sum(line == place for line, (_, place) in zip(lines, PEOPLE.dev, strict=True))
    assert f"dev exact_match {right / 30:.4f}  (30 questions)" in printed
    assert "test exact_match" not in printed
    assert len(files["test"].read_text(encoding="utf-8").splitlines()) == 5


def test_a_file_of_questions_is_answered_as_its_split_is(run, people, tmp_path, capsys):
    split = score(run, split="dev")
    file = f"{people['path']}/birth_dev.tsv"
    assert jaxnlp_main(["evaluate", str(run), "--file", file]) == 0
    assert f"{file} exact_match {split.metrics['exact_match'].value:.4f}  (30 questions)" in capsys.readouterr().out
    bare = tmp_path / "bare.tsv"
    bare.write_text("\n" + "".join(f"{question}\n" for question, _ in PEOPLE.dev), encoding="utf-8")
    assert jaxnlp_main(["evaluate", str(run), "--file", str(bare)]) == 0
    assert capsys.readouterr().out == "\n" + split.predictions["answers.txt"]


def test_a_constant_answer_is_scored_by_its_command(run, capsys):
    place = PEOPLE.dev[0][1]
    assert jaxnlp_main(["evaluate", str(run), "constant_answer", "--split", "dev", "--answer", place]) == 0
    share = sum(answer == place for _, answer in PEOPLE.dev) / 30
    assert capsys.readouterr().out == f"dev exact_match {share:.4f}  (30 questions)\n"
    found = score(run, ConstantAnswer(), split="dev")
    places = [question.answer for question in load_questions(run)]
    assert found.remarks == {"answer": max(places, key=places.count)}


def load_questions(run):
    trained, config = load_run(run), evaluate.run_folder.read_config(run)
    return config.data.load(config.seed, trained.processor).split("train").examples


def test_training_logs_and_reports_how_many_answers_are_right(run):
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    logged = [row["exact_match"] for row in rows if row["split"] == "validation"][-1]
    page = write_report(run).read_text(encoding="utf-8")
    assert f"{round(10 * logged)} of 10 right" in page
    assert "Accuracy by frequency of the answer" in page
    assert "The attention of each character of the answer" in page


def test_the_best_checkpoint_is_the_one_with_the_most_right_answers(run):
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    shares = {row["step"]: row["exact_match"] for row in rows if row["split"] == "validation"}
    assert list(shares) == [15, 30, 45, 60]
    assert shares[load_run(run, checkpoint="best").step] == max(shares.values())


def test_the_verb_predict_answers_too(run, capsys):
    questions = [question for question, _ in PEOPLE.dev[:3]]
    assert main(["predict", str(run), *questions, "--checkpoint", "latest"]) == 0
    expected = score(run, split="dev", checkpoint="latest").predictions["answers.txt"].splitlines()[:3]
    assert capsys.readouterr().out.splitlines() == expected
    assert main(["predict", str(run), "Ж?"]) == 2
    assert "error: text 1: question 'Ж?': not in the vocabulary" in capsys.readouterr().err


VARIANTS = {
    "gpt": ("", []),
    "prefix": ("_perceiver", []),
    "along": ("_perceiver", ["--model.latent-placement", "along"]),
    "synthesizer": ("_synthesizer", []),
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_recipes_of_each_variant_run_from_pretraining_to_answers(quick_fit, tmp_path, variant, monkeypatch, capsys):
    """A few steps of a small model, by the README's commands: another test measures what is learnt."""
    # Hundreds of answers take longer than the rest.
    monkeypatch.setattr(evaluators, "answer", lambda decoder, params, vocabulary, texts: ["London" for _ in texts])
    small = ["--data.source", "invented", "--data.held-out", "8", "--model.width", "16", "--model.num-heads", "2"]
    steps = [
        "--data.batch-size",
        "8",
        "--data.few-lengths",
        "True",
        "--total-steps",
        "2",
        "--evaluate-every-steps",
        "2",
    ]
    ending, more = VARIANTS[variant]
    options = [*more, *small, "--model.num-layers", "3", "--model.compute.scan-layers", "True", *steps]
    for recipe, begin in (
        ("names_pretrain", []),
        ("names_finetune", ["--init-from", str(tmp_path / "names_pretrain")]),
    ):
        trained, _ = parse([recipe + ending, *options, *begin], RunOptions(), program="train")
        on_one_device(quick_fit, update(trained, **{"data.evaluation_batch_size": 8}), tmp_path / recipe)
    monkeypatch.undo()
    (tmp_path / "questions.txt").write_text("Where was Ada born?\nWhere was Bob born?\n")
    predict = ["predict", str(tmp_path / "names_finetune"), "--file", str(tmp_path / "questions.txt")]
    assert main(predict) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2
