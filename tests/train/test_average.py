"""The average of runs, or of a run's checkpoints, is a run."""

import json
import re
import shutil

import jax
import numpy as np
import pytest

from jaxnlp.__main__ import main
from jaxnlp.runs import load_run
from train.average import mean_of
from train.run.folder import RunMismatchError

pytestmark = pytest.mark.thorough


@pytest.fixture(scope="module")
def runs(tiny_config, tiny_gpt, small_text, quick_fit, tmp_path_factory):
    """Two runs that differ in their seeds; the first has two checkpoints."""
    place = tmp_path_factory.mktemp("members")
    for seed in (0, 1):
        fields = {"total_steps": 4, "evaluate_every_steps": 2, "checkpoint_every_steps": 2, "keep_checkpoints": 2}
        quick_fit(tiny_config(model=tiny_gpt, seed=seed, **fields), place / f"seed{seed}")
    return place


def assert_mean(out, members):
    found = jax.tree.leaves_with_path(load_run(out).params)
    each = [jax.tree.leaves(jax.device_get(one.params)) for one in members]
    for (path, leaf), *leaves in zip(found, *each, strict=True):
        np.testing.assert_allclose(leaf, np.mean(leaves, axis=0), rtol=1e-6, atol=1e-7, err_msg=str(path))
    assert any((a != b).any() for a, b in zip(*each[:2], strict=True))


def test_the_average_of_runs_is_a_run_with_the_score_that_is_printed(runs, tmp_path, capsys):
    out = tmp_path / "out"
    folders = [str(runs / f"seed{seed}") for seed in (0, 1)]
    names = [f"{folder}, step 4" for folder in folders]
    assert main(["average", *folders, "--out", str(out)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(": ")[0] for line in lines] == [*names, f"average, {out}"]
    assert_mean(out, [load_run(folder) for folder in folders])
    shown = re.search(r"loss ([\d.]+)", lines[-1])[1]
    assert main(["evaluate", str(out)]) == 0
    assert f"validation loss {shown} " in capsys.readouterr().out
    assert json.loads((out / "environment.json").read_text())["averaged"] == names
    assert main(["generate", str(out), "--prompt", "a", "--max-new-tokens", "2"]) == 0
    assert main(["report", str(out)]) == 0


def test_an_average_is_not_trained_further_in_its_folder_but_another_run_starts_from_it(
    runs, tiny_config, tiny_gpt, quick_fit, tmp_path, capsys
):
    out = tmp_path / "out"
    assert main(["average", str(runs / "seed0"), "--out", str(out)]) == 0
    fields = {"total_steps": 4, "evaluate_every_steps": 2, "checkpoint_every_steps": 2, "keep_checkpoints": 2}
    with pytest.raises(RunMismatchError, match=r"an average of runs, .*; train in another --workdir with --init-from"):
        quick_fit(tiny_config(model=tiny_gpt, seed=0, **fields), out)
    capsys.readouterr()
    assert main(["train", "--resume", str(out)]) != 0
    assert "an average of runs" in capsys.readouterr().err
    quick_fit(tiny_config(model=tiny_gpt, init_from=out, **fields | {"total_steps": 2}), tmp_path / "next")


def test_the_checkpoints_of_one_run_are_averaged(runs, tmp_path, capsys):
    run, out = runs / "seed0", tmp_path / "out"
    assert main(["average", str(run), "--out", str(out)]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 3
    assert_mean(out, [load_run(run, checkpoint=step) for step in (2, 4)])
    assert main(["average", str(out), "--out", str(tmp_path / "again")]) == 2
    assert "has 1 checkpoint; give several runs" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("file", "path", "value", "difference"),
    [
        ("config.json", ("model", "width"), 16, "architecture.width: 8 -> 16"),
        ("processor.json", ("characters",), ["a", "b"], "processor.characters: "),
    ],
)
def test_runs_that_differ_are_refused_in_one_line(runs, tmp_path, capsys, file, path, value, difference):
    other = tmp_path / "other"
    shutil.copytree(runs / "seed1", other)
    fields = json.loads((other / file).read_text())
    inner = fields[path[0]] if len(path) > 1 else fields
    inner[path[-1]] = value
    (other / file).write_text(json.dumps(fields))
    assert main(["average", str(runs / "seed0"), str(other), "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert f"{runs / 'seed0'} and {other} differ in {difference}" in error
    assert not (tmp_path / "out").exists()


def test_folders_are_checked_first(runs, tmp_path, capsys):
    assert main(["average", str(runs / "seed0")]) == 2
    assert "the folder of their average with --out" in capsys.readouterr().err
    assert main(["average", str(runs / "seed0"), str(runs / "seed1"), "--out", str(runs)]) == 2
    assert "is not empty; give another directory" in capsys.readouterr().err
    assert main(["average", str(tmp_path), "--out", str(tmp_path / "out")]) == 2
    assert "is not a training run" in capsys.readouterr().err
    (tmp_path / "again").symlink_to(runs / "seed0")
    assert main(["average", str(runs / "seed0"), str(tmp_path / "again"), "--out", str(tmp_path / "out")]) == 2
    assert "again is given twice" in capsys.readouterr().err


def test_sums_are_in_float64_and_means_in_the_type_of_the_parameters():
    trees = [{"a": np.full(2, value, np.float32)} for value in (1e8, 1.0, -1e8)]
    (mean,) = mean_of(trees).values()
    assert mean.dtype == np.float32
    np.testing.assert_array_equal(mean, np.float32(1 / 3))
