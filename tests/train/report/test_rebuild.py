import json

import pytest

from train.report.__main__ import command


def write_run(folder):
    for name, tree in (("config.json", {"recipe": "a"}), ("environment.json", {"metrics": {"loss": {}}})):
        (folder / name).write_text(json.dumps(tree))
    (folder / "metrics.jsonl").write_text('{"step": 1, "split": "train", "loss": 1.0}\n')
    return folder


def test_command_prints_the_path_of_the_report(tmp_path, capsys):
    assert command([str(write_run(tmp_path))]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'report.html'}\n"
    assert (tmp_path / "report.html").exists()


@pytest.mark.parametrize("name", ["config.json", "environment.json", "metrics.jsonl"])
def test_command_names_a_missing_file_in_one_line_and_exits_with_2(tmp_path, capsys, name):
    (write_run(tmp_path) / name).unlink()
    with pytest.raises(SystemExit) as stop:
        command([str(tmp_path)])
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
            command([str(folder)])
        assert stop.value.code == 2
        error = capsys.readouterr().err
        assert expected in error
        assert error.count("\n") == 1


def test_a_folder_of_runs_names_them(tmp_path, capsys):
    (tmp_path / "mine").mkdir()
    write_run(tmp_path / "mine")
    with pytest.raises(SystemExit) as stop:
        command([str(tmp_path)])
    assert stop.value.code == 2
    assert capsys.readouterr().err == f"error: {tmp_path / 'config.json'} is missing; runs inside it: mine\n"


@pytest.mark.parametrize(("arguments", "status"), [([], 2), (["--help"], 0)])
def test_help_names_what_is_wanted(capsys, arguments, status):
    assert command(arguments) == status
    assert capsys.readouterr().out.startswith("usage: python -m train.report RUN\n")


def test_more_than_a_run_is_a_wrong_command(capsys):
    with pytest.raises(SystemExit) as stop:
        command(["a", "b"])
    assert stop.value.code == 2
    assert capsys.readouterr().err == "error: give one run, and no option: python -m train.report RUN\n"
