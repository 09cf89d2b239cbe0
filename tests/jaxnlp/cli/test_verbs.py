import re

import pytest

from jaxnlp.cli.verbs import every_command, parse_options, run_verb, verb_table


def test_every_verb_is_listed_once_with_one_short_line(monkeypatch):
    monkeypatch.setenv("COLUMNS", "105")
    lines = verb_table().splitlines()
    assert [line.split()[0] for line in lines] == list(every_command())
    assert all(line.endswith(".") for line in lines)


def test_a_verb_that_several_tasks_have_has_a_line_for_all_of_them():
    for verb, kinds in every_command().items():
        assert len(kinds) == 1 or len({kind.summary for kind in kinds} - {""}) == 1, verb


def test_a_verb_with_several_meanings_has_them_all_in_its_help(capsys):
    assert run_verb("predict", ["--help"], "jaxnlp") == 0
    printed = capsys.readouterr().out
    assert printed.startswith("usage: jaxnlp predict RUN [options]\n")
    assert printed.count("\n- ") == len(every_command()["predict"])


def test_a_verb_with_one_meaning_has_its_options_in_its_help(capsys):
    assert run_verb("parse", ["--help"], "jaxnlp") == 0
    assert "--num-beams" in capsys.readouterr().out


@pytest.mark.parametrize(("verb", "reads"), [("generate", False), ("export", False), ("parse", True), ("ask", True)])
def test_only_verbs_that_read_files_have_options_of_their_format(verb, reads, capsys):
    for kind in every_command()[verb]:
        with pytest.raises(SystemExit):
            parse_options(kind, ["--help"], "jaxnlp")
        assert ("--data.encoding" in capsys.readouterr().out) is reads


def test_a_run_before_the_verb_is_named(tmp_path):
    with pytest.raises(ValueError, match=f"give it before the folder: prog VERB {re.escape(str(tmp_path))}$"):
        run_verb(str(tmp_path), ["generate"], "prog")


def test_of_two_mistakes_the_verb_is_named_first(tmp_path):
    with pytest.raises(ValueError, match=r"there is no verb 'genrate'; did you mean generate\?"):
        run_verb("genrate", [str(tmp_path)], "jaxnlp")
    with pytest.raises(ValueError, match="there is no verb 'tran'; did you mean train"):
        run_verb("tran", [], "jaxnlp", others=["train"])


@pytest.mark.thorough
def test_a_folder_of_runs_names_them(finished_run):
    parent = finished_run.folder.parent
    with pytest.raises(
        ValueError, match=rf"{parent} is not a training run; runs inside it: .*{finished_run.folder.name}"
    ):
        run_verb("generate", [str(parent)], "jaxnlp")


@pytest.mark.thorough
@pytest.mark.parametrize("arguments", [("attention", "the"), ("export", "exported")])
def test_weights_of_fewer_bits_are_refused_where_those_of_training_are_read(
    finished_run, tmp_path, monkeypatch, arguments
):
    monkeypatch.chdir(tmp_path)
    verb, argument = arguments
    with pytest.raises(ValueError, match=f"--weights does not apply: {verb} reads the weights as they were trained"):
        run_verb(verb, [str(finished_run.folder), argument, "--weights", "int8"], "jaxnlp")
    assert not list(tmp_path.iterdir())


def test_every_export_and_every_page_of_attention_reads_the_weights_of_training():
    commands = every_command()
    as_trained = {kind for kinds in commands.values() for kind in kinds if kind.as_trained}
    assert as_trained == {*commands["attention"], *commands["export"]}


def test_no_help_has_the_errors_that_code_raises(capsys):
    for verb in every_command():
        run_verb(verb, ["--help"], "prog")
    shown = capsys.readouterr().out
    assert "Raises" not in shown
    assert "ValueError" not in shown
