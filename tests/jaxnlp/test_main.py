import dataclasses
import os
import shlex
import shutil
import subprocess
import sys

import jax
import numpy as np
import pytest

import jaxnlp
from jaxnlp.__main__ import main
from jaxnlp.tasks import Command
from jaxnlp.tasks.language_model import LanguageModel


@pytest.fixture(autouse=True)
def programs_stay_in_the_tests_own_folder(monkeypatch, compiled_programs):
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(compiled_programs))


def generate(run, *options):
    return main(["generate", str(run), *options])


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["generate", "FOLDER", "--max-new-token", "3"], "--max-new-tokens"),
        (["generate", "FOLDER", "--max-new-tokens", "many"], "--max-new-tokens"),
        (["generate", "--max-new-tokens", "3"], "python -m jaxnlp generate RUN --max-new-tokens 3"),
        (["generate", "FOLDER", "Once upon"], "did you mean --prompt 'Once upon'?"),
        (["generate", "FOLDER", "seed"], "did you mean --seed?"),
        (["--verison"], "there is no option --verison; did you mean --version?"),
        (["generat", "FOLDER"], "the model in FOLDER has no verb 'generat'; did you mean generate?"),
        (["predict", "FOLDER", "a?"], "the model in FOLDER has no verb 'predict'; there are: generate, perplexity"),
        (["generate"], "usage: python -m jaxnlp generate RUN"),
        (["generat", "nowhere"], "there is no verb 'generat'; did you mean generate?"),
        (["tran", "gpt"], "there is no verb 'tran'; did you mean train?"),
        (["generat"], "there is no verb 'generat'; did you mean generate?"),
        ([], "generate"),
    ],
    ids=str,
)
def test_wrong_commands_end_with_status_2_and_a_hint(finished_run, capsys, arguments, hint):
    try:
        status = main([str(finished_run.folder) if word == "FOLDER" else word for word in arguments])
    except SystemExit as ended:  # tyro's
        status = ended.code
    assert status == 2
    out, err = capsys.readouterr()
    assert hint.replace("FOLDER", str(finished_run.folder)) in out + err


def test_an_interruption_ends_the_line_and_the_command(finished_run, capsys, monkeypatch):
    def interrupted(*_, **__):
        yield from np.zeros((2, 1), np.int32)  # the first is shown when there are two
        raise KeyboardInterrupt

    monkeypatch.setattr("jaxnlp.tasks.language_model.commands.generate_tokens", interrupted)
    assert generate(finished_run.folder, "--prompt", "the") == 130
    assert capsys.readouterr() == ("the\n\n\n", "")


@pytest.mark.thorough
def test_a_reader_that_closes_its_end_ends_the_command_without_an_error(finished_run):
    command = [sys.executable, "-m", "jaxnlp", "generate", str(finished_run.folder), "--prompt", "the"]
    environment = os.environ | {"XLA_FLAGS": "", "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout.read(5).startswith(b"the")
        process.stdout.close()
        first, *others = process.stderr.read().splitlines()
        assert first == b"loading JAX"
        assert all(line.startswith(b"note: compiling") for line in others)
    assert process.returncode == 0


@pytest.mark.thorough
@pytest.mark.parametrize("words", [["train", "gpt_python_docs", "--help", "all"], ["--help"], ["train", "--help"]])
def test_output_that_nobody_reads_is_no_error(words):
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "jaxnlp", *words]
    ended = subprocess.run(
        command, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}, stdout=writer, stderr=subprocess.PIPE
    )
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (0, b"")


@pytest.mark.thorough
def test_a_stream_that_the_shell_has_closed_is_no_error():
    command = shlex.join([sys.executable, "-m", "jaxnlp", "--help"])
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run(f"{command} >&-", shell=True, env=environment, stderr=subprocess.PIPE)
    assert (ended.returncode, ended.stderr) == (0, b"")


def test_a_folder_that_is_no_run_is_a_wrong_command(tmp_path, capsys):
    assert generate(tmp_path) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"error: {tmp_path} is neither a training run nor pretrained weights")


def test_a_damaged_checkpoint_ends_with_status_1(finished_run, tmp_path, capsys):
    copy = shutil.copytree(finished_run.folder, tmp_path / "run")
    (copy / "checkpoints" / "2" / "params" / "manifest.ocdbt").write_bytes(b"nothing")
    assert generate(copy, "--checkpoint", "latest") == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"error: checkpoint {copy / 'checkpoints' / '2'} cannot be read")


@pytest.mark.thorough
def test_compiled_programs_are_kept_for_the_next_start(finished_run, tmp_path, monkeypatch):
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR")
    monkeypatch.setenv("JAXNLP_CACHE", str(tmp_path))
    before = jax.config.jax_compilation_cache_dir
    jax.config.update("jax_compilation_cache_dir", None)
    try:
        assert generate(finished_run.folder, "--prompt", "the", "--max-new-tokens", "2") == 0
        assert jax.config.jax_compilation_cache_dir == str(tmp_path / "compiled")
    finally:
        jax.config.update("jax_compilation_cache_dir", before)


def test_a_file_that_cannot_be_read_is_a_wrong_command(finished_run, tmp_path, capsys, monkeypatch):
    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied", "/private")

    monkeypatch.setattr("jaxnlp.cli.verbs.load", refuse)
    assert generate(finished_run.folder) == 2
    line = "error: /private: permission denied; change its permissions, or give another path\n"
    assert capsys.readouterr() == ("", line)


@pytest.mark.parametrize("verb", ["generate", "predict", "embed", "attention", "export"])
def test_every_verb_is_listed_and_has_help_without_a_place(verb, capsys):
    assert main(["--help"]) == 0
    assert f"\n  {verb} " in capsys.readouterr().out
    assert main([verb, "--help"]) == 0
    assert f"usage: python -m jaxnlp {verb} RUN [" in capsys.readouterr().out


def test_help_with_a_place_has_the_options_of_the_verb_and_of_loading(finished_run, capsys):
    with pytest.raises(SystemExit) as ended:
        generate(finished_run.folder, "--help")
    assert ended.value.code == 0
    printed = capsys.readouterr().out
    assert "--num-beams" in printed
    assert "--checkpoint" in printed


def test_help_is_a_verb_too(capsys):
    for words, flags in ((["help"], ["--help"]), (["help", "embed"], ["embed", "--help"])):
        assert main(flags) == 0
        expected = capsys.readouterr().out
        assert (main(words), capsys.readouterr().out) == (0, expected)


def test_the_version_is_that_of_the_package(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"jaxnlp {jaxnlp.__version__}\n"


def test_messages_name_the_program_as_it_was_typed(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["/usr/bin/jaxnlp", "--help"])
    assert main(["--help"]) == 0
    assert capsys.readouterr().out.startswith("usage: jaxnlp VERB RUN [options]\n")


def test_a_verb_is_given_the_further_models_that_it_names(finished_run, monkeypatch):
    @dataclasses.dataclass(frozen=True)
    class Contrast(Command):
        """Compares models."""

        other: str = ""
        """The other one."""

        def further_models(self):
            return (self.other,) if self.other else ()

        def __call__(self, trained, other=None):
            calls.append((trained.folder, other and other.folder))

    calls, folder = [], finished_run.folder
    monkeypatch.setattr(LanguageModel, "commands", {"contrast": Contrast})
    assert main(["contrast", str(folder)]) == 0
    assert main(["contrast", str(folder), "--other", str(folder)]) == 0
    assert calls == [(folder, None), (folder, folder)]
