import os
import shutil
import subprocess
import sys

import jax
import numpy as np
import pytest

from jaxnlp.__main__ import main


@pytest.fixture(autouse=True)
def programs_stay_in_the_tests_own_folder(monkeypatch, compiled_programs):
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(compiled_programs))


def generate(run, *options):
    return main(["generate", str(run), *options])


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["generate", "RUN", "--max-new-token", "3"], "--max-new-tokens"),
        (["generate", "RUN", "--max-new-tokens", "many"], "--max-new-tokens"),
        (["generate"], "python -m jaxnlp generate --help"),
        (["generat", "RUN"], "generate"),
        ([], "generate"),
    ],
    ids=str,
)
def test_what_cannot_be_parsed_exits_with_status_2_and_a_hint(capsys, arguments, hint):
    with pytest.raises(SystemExit) as exit_:
        main(arguments)
    assert exit_.value.code == 2
    out, err = capsys.readouterr()
    assert hint in out + err


def test_an_interruption_ends_the_line_and_the_command(finished_run, capsys, monkeypatch):
    def interrupted(*_, **__):
        yield np.zeros(1, np.int32)
        raise KeyboardInterrupt

    monkeypatch.setattr("jaxnlp.commands.generate.generate_tokens", interrupted)
    assert generate(finished_run.folder, "--prompt", "the") == 130
    assert capsys.readouterr() == ("the\n\n", "")


def test_a_reader_that_has_seen_enough_ends_the_command_quietly(finished_run):
    command = [sys.executable, "-m", "jaxnlp", "generate", str(finished_run.folder), "--prompt", "the"]
    environment = os.environ | {"XLA_FLAGS": "", "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout.read(5).startswith(b"the")
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0


def test_a_folder_that_is_no_run_is_a_wrong_command(tmp_path, capsys):
    assert generate(tmp_path) == 2
    assert capsys.readouterr() == ("", f"error: {tmp_path} is not a run's folder: it has no config.json\n")


def test_a_damaged_checkpoint_is_a_broken_run(finished_run, tmp_path, capsys):
    copy = shutil.copytree(finished_run.folder, tmp_path / "run")
    (copy / "checkpoints" / "2" / "params" / "manifest.ocdbt").write_bytes(b"nothing")
    assert generate(copy, "--checkpoint", "latest") == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"error: checkpoint {copy / 'checkpoints' / '2'} cannot be read")


def test_compiled_programs_are_kept_for_the_next_start(finished_run, tmp_path, monkeypatch):
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR")
    monkeypatch.setenv("JAXNLP_CACHE", str(tmp_path))
    before = jax.config.jax_compilation_cache_dir
    try:
        assert generate(finished_run.folder, "--prompt", "the", "--max-new-tokens", "2") == 0
        assert jax.config.jax_compilation_cache_dir == str(tmp_path / "compiled")
    finally:
        jax.config.update("jax_compilation_cache_dir", before)


def test_a_file_that_cannot_be_read_is_a_wrong_command(finished_run, tmp_path, capsys, monkeypatch):
    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied", "/private")

    monkeypatch.setattr("jaxnlp.commands.generate.load_run", refuse)
    assert generate(finished_run.folder) == 2
    assert capsys.readouterr() == ("", "error: [Errno 13] Permission denied: '/private'\n")


@pytest.mark.parametrize("command", ["generate", "predict", "embed", "attention", "export"])
def test_every_command_has_help_and_wants_its_arguments(command, capsys):
    with pytest.raises(SystemExit) as exit_:
        main([command, "--help"])
    assert exit_.value.code == 0
    assert "--checkpoint" in capsys.readouterr().out
    with pytest.raises(SystemExit) as exit_:
        main([command])
    assert exit_.value.code == 2
