import json

import pytest
import tyro

from train.report.__main__ import main


def write_run(folder):
    for name, tree in (("config.json", {"recipe": "a"}), ("environment.json", {"metrics": {"loss": {}}})):
        (folder / name).write_text(json.dumps(tree))
    (folder / "metrics.jsonl").write_text('{"step": 1, "split": "train", "loss": 1.0}\n')
    return folder


def test_command_prints_the_path_of_the_report(tmp_path, capsys):
    tyro.cli(main, args=[str(write_run(tmp_path))])
    assert capsys.readouterr().out == f"{tmp_path / 'report.html'}\n"
    assert (tmp_path / "report.html").exists()


@pytest.mark.parametrize("name", ["config.json", "environment.json", "metrics.jsonl"])
def test_command_names_a_missing_file_in_one_line_and_exits_with_2(tmp_path, capsys, name):
    (write_run(tmp_path) / name).unlink()
    with pytest.raises(SystemExit) as stop:
        tyro.cli(main, args=[str(tmp_path)])
    assert stop.value.code == 2
    captured = capsys.readouterr()
    assert captured.err.startswith(f"error: {tmp_path / name} is missing")
    assert captured.err.count("\n") == 1
    assert not captured.out
    assert not (tmp_path / "report.html").exists()


def test_command_names_a_missing_folder_and_a_broken_file(tmp_path, capsys):
    (write_run(tmp_path) / "config.json").write_text('{"recipe": ')
    for folder, expected in ((tmp_path / "none", "none"), (tmp_path, "config.json: ")):
        with pytest.raises(SystemExit) as stop:
            tyro.cli(main, args=[str(folder)])
        assert stop.value.code == 2
        error = capsys.readouterr().err
        assert expected in error
        assert error.count("\n") == 1
