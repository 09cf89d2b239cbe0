import re

import pytest

from jaxnlp.verbs import every_command, run_verb, verb_table


def test_every_verb_is_listed_once_with_a_line_for_each_of_its_meanings(monkeypatch):
    monkeypatch.setenv("COLUMNS", "1000")  # no line is wrapped
    lines = verb_table().splitlines()
    commands = every_command()
    assert [line.split()[0] for line in lines if line[2] != " "] == list(commands)
    assert len(lines) == sum(map(len, commands.values()))


def test_the_list_of_verbs_names_the_tasks_of_each_meaning(monkeypatch):
    monkeypatch.setenv("COLUMNS", "1000")
    lines = [line.strip() for line in verb_table().splitlines()]
    assert "Answers questions, one line for each (question answering)." in lines
    (embed,) = (line for line in lines if line.startswith("embed "))
    assert embed.endswith("JSON lines (classification, masked language model, text tasks).")


def test_a_verb_with_several_meanings_has_them_all_in_its_help(capsys):
    assert run_verb("predict", ["--help"], "jaxnlp") == 0
    printed = capsys.readouterr().out
    assert printed.startswith("usage: jaxnlp predict RUN [options]\n")
    assert printed.count("\n- ") == len(every_command()["predict"])


def test_a_verb_with_one_meaning_has_its_options_in_its_help(capsys):
    assert run_verb("embed", ["--help"], "jaxnlp") == 0
    assert "--similarities" in capsys.readouterr().out


def test_a_run_before_the_verb_is_named(tmp_path):
    with pytest.raises(
        ValueError, match=f"^give the verb before the run's folder: prog VERB {re.escape(str(tmp_path))}$"
    ):
        run_verb(str(tmp_path), ["generate"], "prog")


def test_of_two_mistakes_the_verb_is_named_first(tmp_path):
    with pytest.raises(ValueError, match=r"there is no verb 'genrate'; did you mean generate\?"):
        run_verb("genrate", [str(tmp_path)], "jaxnlp")
    with pytest.raises(ValueError, match="there is no verb 'tran'; did you mean train"):
        run_verb("tran", [], "jaxnlp", others=["train"])


def test_a_folder_of_runs_names_them(finished_run):
    parent = finished_run.folder.parent
    with pytest.raises(
        ValueError, match=rf"{parent} is not a training run; runs inside it: .*{finished_run.folder.name}"
    ):
        run_verb("generate", [str(parent)], "jaxnlp")
