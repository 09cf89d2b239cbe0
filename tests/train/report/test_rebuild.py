import json
import re

import pytest

from train.report.rebuild import main


def write_run(folder):
    for name, tree in (("config.json", {"recipe": "a"}), ("environment.json", {"metrics": {"loss": {}}})):
        (folder / name).write_text(json.dumps(tree))
    (folder / "metrics.jsonl").write_text('{"step": 1, "split": "train", "loss": 1.0}\n')
    return folder


def test_command_prints_the_path_of_the_report(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("HOME", str(write_run(tmp_path)))
    assert main(["~"]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'report.html'}\n"
    assert (tmp_path / "report.html").exists()


@pytest.mark.parametrize("name", ["config.json", "environment.json", "metrics.jsonl"])
def test_a_missing_file_is_named(tmp_path, capsys, name):
    (write_run(tmp_path) / name).unlink()
    with pytest.raises(FileNotFoundError, match=re.escape(f"{tmp_path / name} is missing")):
        main([str(tmp_path)])
    assert not (tmp_path / "report.html").exists()


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (["RUN/none"], FileNotFoundError, "none/config.json is missing"),
        (["RUN/broken"], ValueError, "config.json, line 1: not JSON .*; restore the file"),
        (["RUN"], FileNotFoundError, "config.json is missing; runs inside it: broken, mine"),
        (["a", "b"], ValueError, "give one run, and no option"),
    ],
    ids=str,
)
def test_what_is_no_run_is_refused(tmp_path, arguments, error, message):
    for name in ("mine", "broken"):
        (tmp_path / name).mkdir()
        write_run(tmp_path / name)
    (tmp_path / "broken" / "config.json").write_text('{"recipe": ')
    with pytest.raises(error, match=message):
        main([word.replace("RUN", str(tmp_path)) for word in arguments])


@pytest.mark.parametrize(("arguments", "status"), [([], 2), (["--help"], 0)])
def test_help_names_what_is_wanted(capsys, arguments, status):
    assert main(arguments) == status
    assert capsys.readouterr().out.startswith("usage: python -m jaxnlp report RUN\n")
