"""The birth-place assignment from end to end, on invented people: pretrain, fine-tune, evaluate."""

import functools
import json

import jax
import pytest

from data.invented_people import invent, write
from data.names import NamesPretraining, NamesQuestions
from jaxnlp.__main__ import main
from jaxnlp.models.gpt import GPTConfig
from jaxnlp.nn.compute import Compute
from jaxnlp.runs import load_run
from train import evaluate, loop
from train.command_line import RunOptions, parse
from train.config import TrainConfig, update
from train.optimizer import OptimizerConfig
from train.parallel import make_parallel
from train.report import write_report

PEOPLE = invent(0, train=70, dev=30, test=5)


def config(data, steps, *, learning_rate, **changes):
    return TrainConfig(
        **{
            "recipe": "names",
            "data": data,
            "model": GPTConfig(
                num_layers=2, num_heads=4, width=64, context_length=96, compute=Compute(scan_layers=True)
            ),
            "optimizer": OptimizerConfig(name="muon", learning_rate=learning_rate, beta2=0.99, warmup_steps=20),
            "total_steps": steps,
            "evaluate_every_steps": steps,
            "checkpoint_every_steps": steps,
            "log_every_steps": 100,
        }
        | changes
    )


def on_one_device(quick_fit, *arguments):
    """Hundreds of steps in optimised programs: shared by eight devices of two cores they would wait for each other."""
    jax.config.update("jax_disable_most_optimizations", False)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(loop, "make_parallel", lambda mode: make_parallel(mode, jax.devices()[:1]))
            return quick_fit(*arguments)
    finally:
        jax.config.update("jax_disable_most_optimizations", True)


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
    fit = functools.partial(on_one_device, quick_fit)
    fit(config(documents, 1000, learning_rate=1e-2), folder / "pretrained")
    few = {"learning_rate": 1e-3, "best_by": "exact_match", "evaluate_every_steps": 5, "keep_checkpoints": 1}
    fit(config(questions, 20, init_from=str(folder / "pretrained"), **few), folder / "fine_tuned")
    fit(config(questions, 100, learning_rate=1e-2), folder / "from_nothing")
    return folder


def score(run, **options):
    return evaluate.score(evaluate.Evaluate(run, **options))


def test_pretraining_beats_no_pretraining_by_a_wide_margin_on_held_out_names(runs):
    with_it, questions = score(runs / "fine_tuned", split="dev").values["exact_match"]
    without, _ = score(runs / "from_nothing", split="dev").values["exact_match"]
    assert questions == 30
    assert with_it > without + 0.25


def test_answers_are_written_one_a_line_and_scored_by_whoever_has_the_targets(runs, tmp_path, capsys):
    files = {split: tmp_path / split / "answers.txt" for split in ("dev", "test")}
    for split, path in files.items():
        assert evaluate.main([str(runs / "fine_tuned"), "--split", split, "--predictions", str(path)]) == 0
    printed = capsys.readouterr().out
    lines = files["dev"].read_text(encoding="utf-8").splitlines()
    right = sum(line == place for line, (_, place) in zip(lines, PEOPLE.dev, strict=True))
    assert f"dev exact_match {right / 30:.4f}  (30 questions)" in printed
    assert "test: no targets provided, so there is no score; 5 answers" in printed
    assert "test exact_match" not in printed
    assert len(files["test"].read_text(encoding="utf-8").splitlines()) == 5


def test_a_file_of_questions_is_answered_as_its_split_is(runs, tmp_path, capsys):
    split = score(runs / "fine_tuned", split="dev")
    assert score(runs / "fine_tuned", file=runs / "people" / "birth_dev.tsv").values == split.values
    bare = tmp_path / "bare.tsv"
    bare.write_text("".join(f"{question}\n" for question, _ in PEOPLE.dev), encoding="utf-8")
    assert evaluate.main([str(runs / "fine_tuned"), "--file", str(bare)]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == split.answers
    found = score(runs / "fine_tuned", file=bare)
    assert (found.values, found.answers) == ({}, split.answers)


def test_training_logs_and_reports_how_many_answers_are_right(runs):
    rows = [json.loads(line) for line in (runs / "fine_tuned" / "metrics.jsonl").read_text().splitlines()]
    logged = [row["exact_match"] for row in rows if row["split"] == "validation"][-1]
    kept = json.loads((runs / "fine_tuned" / "answers.json").read_text())
    assert kept["step"] == 20
    assert logged == sum(row["given"] == row["answer"] for row in kept["answers"]) / 10
    page = write_report(runs / "fine_tuned").read_text(encoding="utf-8")
    assert f"Step 20: {round(10 * logged)} of 10 right." in page
    assert "What each character of an answer looks at" in page


def test_the_best_checkpoint_is_the_one_with_the_most_right_answers(runs):
    rows = [json.loads(line) for line in (runs / "fine_tuned" / "metrics.jsonl").read_text().splitlines()]
    shares = {row["step"]: row["exact_match"] for row in rows if row["split"] == "validation"}
    assert list(shares) == [5, 10, 15, 20]
    assert shares[load_run(runs / "fine_tuned", checkpoint="best").step] == max(shares.values())


def test_the_installed_command_answers_too(runs, capsys):
    questions = [question for question, _ in PEOPLE.dev[:3]]
    assert main(["predict", str(runs / "fine_tuned"), *questions, "--checkpoint", "latest"]) == 0
    expected = score(runs / "fine_tuned", split="dev", checkpoint="latest").answers[:3]
    assert capsys.readouterr().out.splitlines() == expected
    assert main(["predict", str(runs / "fine_tuned"), "Ж?"]) == 2
    assert "question 'Ж?' cannot be spelt" in capsys.readouterr().err


VARIANTS = {
    "vanilla": ("", []),
    "prefix": ("_perceiver", []),
    "along": ("_perceiver", ["--model.latent-placement", "along"]),
    "synthesizer": ("_synthesizer", []),
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_each_variant_goes_the_whole_way_from_the_recipes_on_invented_people(quick_fit, tmp_path, variant):
    """A few steps of a small model, by the README's commands: what is learnt is another test's."""
    small = ["--data.source", "invented", "--data.held-out", "8", "--model.width", "16", "--model.num-heads", "2"]
    steps = ["--data.batch-size", "8", "--total-steps", "2", "--evaluate-every-steps", "2"]
    ending, more = VARIANTS[variant]
    options = [*more, *small, "--model.num-layers", "3", "--model.compute.scan-layers", *steps]
    for recipe, more in (("names_pretrain", []), ("names_finetune", ["--init-from", str(tmp_path / "names_pretrain")])):
        trained, _ = parse([recipe + ending, *options, *more], RunOptions(), program="train")
        trained = update(trained, **{"data.evaluation_batch_size": 8})
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(loop._Evaluator, "_answer", lambda *_: 0.0)  # hundreds of answers take longer than the rest
            quick_fit(trained, tmp_path / recipe)
    questions = tmp_path / "questions.txt"
    questions.write_text("Where was Ada born?\nWhere was Bob born?\n")
    lines = tmp_path / "answers.txt"
    found = evaluate.main([str(tmp_path / "names_finetune"), "--file", str(questions), "--predictions", str(lines)])
    assert found == 0
    assert len(lines.read_text().splitlines()) == 2
