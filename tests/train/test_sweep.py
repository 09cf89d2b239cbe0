import csv
import errno
import json
import os
import signal
import sys
from pathlib import Path

import pytest

from jaxnlp.__main__ import main as jaxnlp_main
from jaxnlp.saving.serialization import to_json
from train import sweep as module
from train.at_once import Ending
from train.cli.command_line import UsageError
from train.run.folder import LOCK_FILE, RunMismatchError
from train.run.signals import STOP_SIGNALS
from train.sweep import SweepCommand, main, plan, read_command, read_grid, sweep, sweep_at_once

GRID = ["model.num_layers=1,2", "optimizer.learning_rate=1e-3,3e-3"]


class Trainer:
    """Writes what a finished run leaves, and notes the calls; fails where it is told to."""

    def __init__(self, runs, failing=()):
        self.runs, self.failing, self.called = {run.arguments: run for run in runs}, failing, []

    def __call__(self, arguments, log):
        run = self.runs[arguments]
        self.called.append(run.folder.name)
        log.parent.mkdir(parents=True, exist_ok=True)
        if run.folder.name in self.failing:
            log.write_text("step 1\nerror: the loss was not finite\n")
            return 1
        (run.folder / "checkpoints" / str(run.config.total_steps)).mkdir(parents=True)
        (run.folder / "config.json").write_text(json.dumps(to_json(run.config)))
        metrics = {"loss": {"of": "tokens", "unit": "nats", "better": "lower"}}
        (run.folder / "environment.json").write_text(json.dumps({"metrics": metrics}))
        row = {"step": run.config.total_steps, "split": "validation", "loss": 1.5, "train_seconds": 2.0}
        (run.folder / "metrics.jsonl").write_text(json.dumps(row) + "\n")
        return 0


def planned(tmp_path, grid=GRID, recipe="gpt_shakespeare_cpu", ablate=False, others=("--total-steps", "4")):
    return plan(SweepCommand(recipe, list(grid), ablate, tmp_path, list(others)))


def table(tmp_path):
    with (tmp_path / "sweep.csv").open() as file:
        return list(csv.DictReader(file))


def test_every_combination_is_a_run_with_a_config_and_a_folder_of_its_own(tmp_path):
    runs = planned(tmp_path)
    assert [run.folder.name for run in runs] == [
        f"num_layers={blocks},learning_rate={rate}" for blocks in (1, 2) for rate in ("1e-3", "3e-3")
    ]
    assert [(run.config.model.num_layers, run.config.optimizer.learning_rate) for run in runs] == [
        (blocks, rate) for blocks in (1, 2) for rate in (1e-3, 3e-3)
    ]
    assert {run.config.total_steps for run in runs} == {4}


def test_a_path_may_have_blanks(tmp_path):
    table = ("--data.source", "table", "--data.label", "label", "--total-steps", "4")
    runs = planned(tmp_path, ["data.path=my texts/a b.csv,c.csv"], "text_cnn", others=table)
    assert [str(run.config.data.path) for run in runs] == ["my texts/a b.csv", "c.csv"]
    runs = planned(tmp_path, ["data.path='a b.txt',c.txt d.txt"], "gpt_text_file")  # a field with several paths
    assert [run.config.data.path for run in runs] == ["a b.txt", ("c.txt", "d.txt")]


def test_a_field_with_several_values_can_be_left_empty(tmp_path):
    runs = planned(tmp_path, ["model.recurrent_widths=empty,8", "model.crf=false"], "conll_tagger", ablate=True)
    assert [run.folder.name for run in runs] == [
        "unchanged",
        "recurrent_widths=empty",
        "recurrent_widths=8",
        "crf=false",
    ]
    assert [run.config.model.recurrent_widths for run in runs] == [(128,), (), (8,), (128,)]
    assert runs[1].values == {"model.recurrent_widths": "empty", "model.crf": "True"}


@pytest.mark.thorough
def test_an_ablation_changes_one_field_at_a_time(tmp_path):
    grid = ["model.num_layers=1,2", "model.residual_dropout_rate=0.5"]
    runs = planned(tmp_path, grid, ablate=True)
    assert [run.folder.name for run in runs] == [
        "unchanged",
        "num_layers=1",
        "num_layers=2",
        "residual_dropout_rate=0.5",
    ]
    recipe = runs[0].config.model
    assert [(run.config.model.num_layers, run.config.model.residual_dropout_rate) for run in runs] == [
        (recipe.num_layers, recipe.residual_dropout_rate),
        (1, recipe.residual_dropout_rate),
        (2, recipe.residual_dropout_rate),
        (recipe.num_layers, 0.5),
    ]
    assert sweep(runs, tmp_path, Trainer(runs)) == 0
    columns = [(row["run"], row["model.num_layers"], row["model.residual_dropout_rate"]) for row in table(tmp_path)]
    assert columns == [
        ("unchanged", str(recipe.num_layers), str(recipe.residual_dropout_rate)),
        ("num_layers=1", "1", str(recipe.residual_dropout_rate)),
        ("num_layers=2", "2", str(recipe.residual_dropout_rate)),
        ("residual_dropout_rate=0.5", str(recipe.num_layers), "0.5"),
    ]
    with pytest.raises(UsageError, match="have equal configs; remove a value"):
        planned(tmp_path, [f"model.num_layers={recipe.num_layers}"], ablate=True)


def test_switches_and_fields_of_several_values_can_be_varied(tmp_path):
    for grid in ("true,false", "True,FALSE"):
        runs = planned(tmp_path, [f"model.compute.remat={grid}"])
        assert [run.config.model.compute.remat for run in runs] == [True, False]
    (run,) = planned(tmp_path, ["data.lengths=8 16"], recipe="chr_en_lstm", others=())
    assert run.config.data.lengths == (8, 16)


@pytest.mark.thorough
def test_a_finished_run_is_not_trained_again_and_a_failed_one_is(tmp_path, monkeypatch, capsys):
    runs, checked = planned(tmp_path), []
    monkeypatch.setattr("train.sweep.check_ended", lambda folder, config: checked.append((folder, config)))
    first = Trainer(runs, failing={"num_layers=1,learning_rate=3e-3"})
    assert sweep(runs, tmp_path, first) == 1
    assert len(first.called) == 4
    rows = table(tmp_path)
    assert [row["status"] for row in rows] == [
        "finished",
        "failed with status 1: error: the loss was not finite",
        "finished",
        "finished",
    ]
    assert rows[0]["best_loss"] == "1.5"
    assert rows[0]["optimizer.learning_rate"] == "1e-3"
    assert rows[1]["best_loss"] == ""
    again = Trainer(runs)
    assert checked == []
    assert sweep(runs, tmp_path, again) == 0
    assert checked == [(run.folder, run.config) for run in (runs[0], *runs[2:])]
    assert again.called == ["num_layers=1,learning_rate=3e-3"]
    assert {row["status"] for row in table(tmp_path)} == {"finished"}
    assert "finished before" in capsys.readouterr().out
    assert "num_layers" in (tmp_path / "sweep.html").read_text()


def test_runs_that_fail_before_they_start_are_recorded(tmp_path):
    runs = planned(tmp_path)
    assert sweep(runs, tmp_path, Trainer(runs, failing={run.folder.name for run in runs})) == 4
    assert {row["status"] for row in table(tmp_path)} == {"failed with status 1: error: the loss was not finite"}
    assert not (tmp_path / "sweep.html").exists()


def test_a_second_sweep_in_the_folder_is_refused_and_marks_no_run_as_failed(tmp_path):
    runs = planned(tmp_path)
    trainer, refused = Trainer(runs), []

    def train(arguments, log):
        if not refused:
            with pytest.raises(RunMismatchError, match="runs a sweep in") as error:
                sweep(runs, tmp_path, Trainer(runs, failing={run.folder.name for run in runs}))
            refused.append(error)
        return trainer(arguments, log)

    assert sweep(runs, tmp_path, train) == 0
    assert {row["status"] for row in table(tmp_path)} == {"finished"}
    assert not (tmp_path / LOCK_FILE).exists()


def test_results_are_there_after_each_run(tmp_path):
    runs = planned(tmp_path)
    trainer, seen = Trainer(runs), []

    def train(arguments, log):
        seen.append([row["status"] for row in table(tmp_path)] if (tmp_path / "sweep.csv").exists() else None)
        return trainer(arguments, log)

    sweep(runs, tmp_path, train)
    assert seen[0] is None
    assert seen[2] == ["finished", "finished", "not finished", "not finished"]


@pytest.mark.thorough
def test_a_folder_of_another_sweep_is_refused_before_anything_is_trained(tmp_path):
    runs = planned(tmp_path)
    sweep(runs[-1:], tmp_path, Trainer(runs))
    others = planned(tmp_path, others=["--total-steps", "4", "--seed", "7"])
    trainer = Trainer(others)
    with pytest.raises(ValueError, match="holds a run with another config"):
        sweep(others, tmp_path, trainer)
    assert trainer.called == []


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        (["model.num_layer=1"], "has no field model.num_layer; did you mean model.num_layers?"),
        (["model.num_layers"], "expected FIELD=VALUE,VALUE, such as model.num_layers=1,2"),
        (["model.num_layers=1,1"], "each field and each value may occur only once"),
        (["model.compute.remat=1,0"], "the values of model.compute.remat must be true or false"),
        (["model.compute.remat=yes,no"], "the values of model.compute.remat must be true or false"),
        (["model.compute.remat=true,True"], "remat=true and remat=True have equal configs; remove a value"),
        (["optimizer.learning_rate=1e-3,0.001"], "learning_rate=1e-3 and learning_rate=0.001 have equal configs"),
    ],
)
def test_a_grid_that_cannot_be_is_refused_before_anything_is_trained(tmp_path, grid, message):
    with pytest.raises(UsageError, match=message.replace("?", r"\?")):
        planned(tmp_path, grid)


@pytest.mark.parametrize(("grid", "error"), [(["model.num_heads=3"], UsageError), (["model.width=wide"], SystemExit)])
def test_values_that_the_config_refuses_end_the_command(tmp_path, capsys, grid, error):
    with pytest.raises(error) as refused:
        planned(tmp_path, grid)
    field = grid[0].partition("=")[0].replace("_", "-")
    assert f"--{field}" in f"{refused.value}{capsys.readouterr().err}"


def test_the_command_is_split_at_the_grid():
    arguments = ["a", "--seed", "1", "--grid", "x=1", "y=2", "--workdir", "here", "--total-steps", "3"]
    others = ["--seed", "1", "--total-steps", "3"]
    assert read_command(arguments) == SweepCommand("a", ["x=1", "y=2"], False, Path("here"), others)
    in_one_word = ["a", "--seed=1", "--grid=x=1", "y=2", "--workdir=here"]
    assert read_command(in_one_word) == SweepCommand("a", ["x=1", "y=2"], False, Path("here"), ["--seed=1"])
    values = ["a", "--lr", "-1e-3", "--no-x", "--grid", "x=1", "--betas", "0.9", "-1", "--grid", "y=2"]
    rest = ["--lr", "-1e-3", "--no-x", "--betas", "0.9", "-1"]
    assert read_command(values) == SweepCommand("a", ["x=1", "y=2"], False, Path("runs/sweep_a"), rest)
    at_home = SweepCommand("a", ["x=1"], False, Path.home() / "here", [])
    assert read_command(["a", "--grid", "x=1", "--workdir=~/here"]) == at_home
    ablation = ["a", "--ablate", "x=1", "y=2", "--seed", "1"]
    assert read_command(ablation) == SweepCommand("a", ["x=1", "y=2"], True, Path("runs/sweep_a"), ["--seed", "1"])
    seeds = SweepCommand("a", ["x=1,2", "seed=0,1"], False, Path("runs/sweep_a"), [], at_once=True)
    assert read_command(["a", "--seeds", "2", "--at-once", "--grid", "x=1,2"]) == seeds
    assert read_command(["a", "--seeds", "2", "--at_once"]).at_once
    assert read_command(["a", "--seeds=2"]).grid == ["seed=0,1"]
    for broken, message in (
        (["--grid", "x=1"], "must be a recipe"),
        (["a"], "--grid is missing; give the fields to vary"),
        (["a", "--seeds", "0"], "--seeds needs a number from 1 to 1,000, got '0'"),
        (["a", "--seeds", "2", "--at-once=True"], "--at-once ignored explicit argument 'True'"),
        (["a", "--seeds=x"], "--seeds needs a number from 1 to 1,000, got 'x'"),
        (["a", "--seeds", "2", "--ablate", "y=1"], "--ablate excludes --grid and --seeds"),
        (["a", "--ablate", "--seed", "1"], "--ablate has no values; give the fields to vary with --ablate FIELD=VALUE"),
        (["a", "--grid", "x=1", "--ablate", "y=1"], "give one of them"),
        (["a", "--grid", "x=1", "--workdir"], "--workdir needs a folder"),
        (["a", "--grid", "x=1", "--workdir="], "--workdir needs a folder"),
        (["a", "--grid", "x=1", "--workdir", "--seed", "1"], "--workdir needs a folder"),
    ):
        with pytest.raises(UsageError, match=message):
            read_command(broken)


def test_wrong_commands_end_with_2_and_an_interrupted_one_with_130(tmp_path, monkeypatch, capsys):
    assert jaxnlp_main(["sweep", "gpt_shakespeare_cpu", "--grid", "model.wdth=1"]) == 2
    assert "did you mean model.width?" in capsys.readouterr().err

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "sweep", interrupted)
    assert main(["gpt_shakespeare_cpu", "--grid", "model.width=16", "--workdir", str(tmp_path)]) == 130
    assert "to resume, repeat the command" in capsys.readouterr().err


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_a_signal_ends_the_sweep_once_its_run_has_saved(tmp_path, monkeypatch, number):
    run = f"""import os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit("saved"))
os.kill(os.getppid(), {number})
time.sleep(10)"""
    monkeypatch.setattr(module, "command_of", lambda *_: ([sys.executable, "-c", run], os.environ))
    before = signal.signal(signal.SIGHUP, lambda *_: None)  # whoever starts the tests may ignore it
    try:
        assert main(["gpt_shakespeare_cpu", "--seeds", "2", "--workdir", str(tmp_path)]) == 128 + number
    finally:
        signal.signal(signal.SIGHUP, before)
    assert [(log.name, log.read_text()) for log in tmp_path.glob("*.log")] == [("seed=0.log", "saved\n")]


def test_a_full_disk_is_a_line(tmp_path, monkeypatch, capsys):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device", "runs/sweep.csv")

    monkeypatch.setattr(module, "sweep", full)
    assert jaxnlp_main(["sweep", "gpt_shakespeare_cpu", "--grid", "model.width=16", "--workdir", str(tmp_path)]) == 2
    assert capsys.readouterr().err.startswith("error: runs/sweep.csv: no space left on device; free some space there")


def test_fields_are_those_of_the_recipe(tiny_config):
    assert read_grid(["total_steps=1,2"], tiny_config()) == {"total_steps": ["1", "2"]}


@pytest.mark.thorough  # two processes that train
def test_the_command_trains_runs_and_records_one_that_fails(tmp_path, capfd):
    command = ["gpt_python_docs", "--grid", "optimizer.learning_rate=1e-3,1e30", "--workdir", str(tmp_path)]
    small = ["--model.num-layers", "1", "--model.width", "16", "--model.num-heads", "1", "--task.sample-prompt", "None"]
    small += ["--task.sample-tokens", "200"]
    steps = ["--total-steps", "8", "--log-every-steps", "1", "--data.batch-size", "2"]
    assert main([*command, *small, *steps]) == 1
    finished, failed = table(tmp_path)
    assert (finished["status"], finished["step"]) == ("finished", "8")
    assert float(finished["best_loss"]) > 0
    assert failed["status"].startswith("failed with status 1: error: ")
    assert "2/2" in capfd.readouterr().out


@pytest.mark.parametrize("words", ["--help", "gpt_python_docs --help", "gpt_python_docs --grid seed=0,1 -h"])
def test_help_is_that_of_the_sweep_wherever_it_is_asked_for(capsys, words):
    assert main(words.split()) == 0
    printed = capsys.readouterr().out
    assert " sweep RECIPE --grid" in printed.splitlines()[0]
    assert "jaxnlp train RECIPE --help shows them" in " ".join(printed.split())


@pytest.mark.thorough
def test_a_sweep_at_once_trains_all_unfinished_runs_with_one_program(tmp_path, monkeypatch):
    runs = plan(SweepCommand("gpt_shakespeare_cpu", ["seed=0,1,2"], False, tmp_path, ["--total-steps", "4"], True))
    trained = []

    def fit(configs, folders, commands, console):
        trained.extend(folder.name for folder in folders)
        assert [config.seed for config in configs] == [1, 2]
        assert commands[0] == f"jaxnlp train gpt_shakespeare_cpu --total-steps 4 --seed 1 --workdir={folders[0]}"
        for run in runs[1:]:
            train(run.arguments, run.log)
        return Ending(None, {folders[1]: "the loss was not finite"})

    train = Trainer(runs)
    train(runs[0].arguments, runs[0].log)
    monkeypatch.setattr("train.at_once.fit_at_once", fit)
    monkeypatch.setattr("train.sweep.check_ended", lambda *_: None)  # the fit above has written no checkpoint
    assert sweep_at_once(runs, tmp_path) == 1
    assert trained == ["seed=1", "seed=2"]
    assert [row["status"] for row in table(tmp_path)] == [*["finished"] * 2, "failed: the loss was not finite"]
    others = plan(SweepCommand("gpt_shakespeare_cpu", ["seed=0,1,2"], False, tmp_path, ["--total-steps", "3"], True))
    with pytest.raises(RunMismatchError, match="total_steps"):
        sweep_at_once(others, tmp_path)
    with pytest.raises(
        UsageError, match="--at-once trains new steps on one device, from one process; remove --parallel"
    ):
        plan(SweepCommand("gpt_shakespeare_cpu", ["seed=0,1"], False, tmp_path, ["--parallel", "fsdp"], True))
