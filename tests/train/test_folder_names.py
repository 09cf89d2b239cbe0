"""Folders and files whose names have unusual characters."""

import shutil

import pytest

from jaxnlp.__main__ import main
from jaxnlp.__main__ import main as jaxnlp_main
from jaxnlp.runs import load_run
from tests.run_folders import EVERY_SIGN
from train.config import update
from train.loop import fit
from train.report import write_report
from train.run.folder import RunMismatchError


@pytest.mark.thorough
def test_a_folder_of_any_name_trains_resumes_loads_reports_and_starts_other_runs(
    tiny_config, tiny_gpt, small_text, tmp_path, quiet, quick_fit, stop_at, capsys
):
    folder, text = tmp_path / EVERY_SIGN, tmp_path / f"{EVERY_SIGN}.txt"
    shutil.copy(small_text, text)
    config = tiny_config(model=tiny_gpt, total_steps=4, **{"data.path": str(text)})
    with stop_at(2):
        quick_fit(config, folder)
    assert int(fit(config, folder, console=quiet).state.step) == 4
    assert load_run(folder).step == 4
    assert main(["generate", str(folder), "--prompt", "the", "--max-new-tokens", "3"]) == 0
    assert write_report(folder) == folder / "report.html"
    capsys.readouterr()
    assert (
        jaxnlp_main(
            ["evaluate", str(folder), "--file", str(text), "--predictions", str(tmp_path / f"{EVERY_SIGN}.out")]
        )
        == 2
    )
    assert "has nothing to predict" in capsys.readouterr().err
    assert int(quick_fit(update(config, init_from=str(folder)), tmp_path / "next").state.step) == 4


@pytest.mark.parametrize("where", ["the folder", "the data"])
def test_a_name_that_is_not_utf8_is_refused_with_its_character_before_anything_is_written(
    tiny_config, small_text, tmp_path, quick_fit, where
):
    place = tmp_path / "run"
    if where == "the folder":
        config, place = tiny_config(), tmp_path / "run\udc80"
    else:
        config = tiny_config(**{"data.path": str(shutil.copy(small_text, tmp_path / "text\udc80"))})
    with pytest.raises(RunMismatchError, match=r"'\\udc80' in .* is not a character of UTF-8; rename the file"):
        quick_fit(config, place)
    assert not place.exists()
