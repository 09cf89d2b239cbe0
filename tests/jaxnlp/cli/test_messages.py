import errno
import logging
import re
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import jax
import pytest

from jaxnlp.cli.messages import (
    OURS,
    exit_status,
    program_name,
    reason,
    say_that_jax_loads,
    show_plain_warnings,
    summary_of,
    table,
    wrapped,
)


def test_a_summary_is_the_first_sentence_of_a_docstring_in_one_line():
    class Cat:
        """Weighs 3.5 kg, if it
        is hungry. It sleeps."""

    assert summary_of(Cat) == summary_of(Cat()) == "Weighs 3.5 kg, if it is hungry."
    assert summary_of(type("Dog", (), {})) == ""


@pytest.mark.parametrize(
    ("arguments", "printed"),
    [
        (["gpt", "--seed", "1"], "loading JAX\n"),
        ([], ""),
        (["--help"], ""),
        (["gpt", "--seed", "1", "-h"], ""),
        (["gpt", "--help=model"], ""),
    ],
    ids=str,
)
def test_the_first_line_is_printed_before_jax_is_imported_and_for_no_help(monkeypatch, capsys, arguments, printed):
    say_that_jax_loads(arguments)  # JAX is imported here
    monkeypatch.delitem(sys.modules, "jax")
    say_that_jax_loads(arguments)
    assert capsys.readouterr() == ("", printed)


@pytest.mark.parametrize(
    ("typed", "name"),
    [("/usr/bin/jaxnlp", "jaxnlp"), ("/x/jaxnlp/__main__.py", "python -m jaxnlp"), ("pytest", "python -m jaxnlp")],
)
def test_the_program_has_its_name_as_typed(monkeypatch, typed, name):
    monkeypatch.setattr(sys, "argv", [typed])
    assert program_name() == name


def as_in_a_new_process(monkeypatch):
    """Sets Python's logging back. (Not in a fixture: pytest adds its handlers after them.)"""
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    for name in ("", *OURS):
        monkeypatch.setattr(logging.getLogger(name), "level", logging.WARNING)
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)


def test_warnings_and_notes_are_plain_lines_without_names_of_modules(monkeypatch, capsys):
    as_in_a_new_process(monkeypatch)
    show_plain_warnings()
    logging.getLogger("train.tasks").warning("%s: 3 texts were truncated", "sst")
    logging.getLogger("__main__").warning("no tokens")
    logging.getLogger("absl").warning("a checkpoint without metrics")
    logging.getLogger("asyncio").error("Future exception was never retrieved")
    logging.getLogger("data.tables").info("2 rows are blank")
    logging.getLogger("train.tasks").debug("loaded")
    logging.getLogger("urllib3").info("a connection")
    logging.getLogger("urllib3").error("no connection")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("this is slow", stacklevel=1)
    assert capsys.readouterr() == (
        "",
        "warning: sst: 3 texts were truncated\nwarning: no tokens\nnote: 2 rows are blank\nerror: no connection\n"
        "warning: this is slow\n",
    )


@pytest.mark.parametrize(
    ("action", "reason", "shown"),
    [
        ("writing", "OSError: [Errno 28] No space left", "not kept, .*No space left$"),
        ("writing", "PermissionError: [Errno 13] Not permitted: '/it/{name}-x'", "not kept, .*Not permitted$"),
        (
            "reading",
            'PermissionError: [Errno 13] Not permitted: "it\'s/{name}"',
            "compiled again: .*Not permitted$",
        ),
    ],
)
def test_a_cache_that_cannot_be_used_is_one_line_that_names_its_folder(action, reason, shown, monkeypatch, capsys):
    as_in_a_new_process(monkeypatch)
    show_plain_warnings()
    for name in ("jit_a", "jit_b"):
        text = f"Error {action} persistent compilation cache entry for '{name}': {reason.format(name=name)}"
        warnings.showwarning(UserWarning(text), UserWarning, "compiler.py", 1)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"warning: {jax.config.jax_compilation_cache_dir}: compiled programs")
    assert re.search(shown, line)


def test_a_message_is_shown_once_although_a_program_asks_twice(monkeypatch, capsys):
    as_in_a_new_process(monkeypatch)
    show_plain_warnings()
    show_plain_warnings()
    for _ in range(2):
        logging.getLogger("jaxnlp.runs").warning("the checkpoint is damaged")
    assert capsys.readouterr().err == "warning: the checkpoint is damaged\n"


def test_paragraphs_are_filled_to_the_width_and_indented_lines_kept(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    text = "One sentence that is longer than the width.\nAnother.\n\nExample:\n    a  b"
    assert wrapped(text, "  ").splitlines() == [
        "  One sentence that is longer than the",
        "  width. Another.",
        "",
        "  Example:",
        "      a  b",
    ]


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (FileNotFoundError(2, "No such file or directory", "a/b"), "a/b: no such file or directory"),
        (
            PermissionError(13, "Permission denied", Path("c")),
            "c: permission denied; change its permissions, or give another path",
        ),
        (FileNotFoundError("the recipe x does not exist"), "the recipe x does not exist"),
        (ValueError("2 is too many"), "2 is too many"),
        (
            OSError(errno.ENOSPC, "No space left on device", "a/b"),
            "a/b: no space left on device; free some space there, and repeat the command",
        ),
        (
            OSError(errno.ENOSPC, "No space left on device"),
            "standard output: no space left on device; free some space there, and repeat the command",
        ),
        (
            OSError(errno.ENOSPC, "no space for a checkpoint: 1 MB are free, and it takes 2 MB", __file__),
            f"{__file__}: no space for a checkpoint: 1 MB are free, and it takes 2 MB; free some space there, "
            "and repeat the command",
        ),
        (ValueError("got " + "x" * 5000), "got " + "x" * 200 + "... (5,000 characters)"),
        (
            OSError(errno.ENAMETOOLONG, "File name too long", "y" * 1000),
            "y" * 200 + "... (1,001 characters) file name too long; give a shorter name",
        ),
        (MemoryError(), "not enough memory; make the batches, the inputs or the model smaller"),
        (
            MemoryError("Unable to allocate 2 TiB for an array"),
            "not enough memory: Unable to allocate 2 TiB for an array; make the batches, the inputs or the model "
            "smaller",
        ),
        (
            UnicodeEncodeError("latin-1", "a\u2603", 1, 2, "ordinal not in range(256)"),
            "the locale has the encoding latin-1, without '\\u2603'; set PYTHONUTF8=1 for UTF-8",
        ),
    ],
    ids=str,
)
def test_the_reason_of_an_error_has_no_number_of_the_system(error, message):
    assert reason(error) == message


def test_a_lack_of_memory_is_a_line_and_another_error_of_the_device_a_traceback(capsys):
    for error in (
        MemoryError(),
        RuntimeError("can't start new thread"),
        ImportError("x.so: failed to map segment from shared object"),
        jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes.\nx"),
    ):
        assert exit_status(raising(error)) == 2
        assert capsys.readouterr().err.startswith("error: not enough memory")
    for mistake in (
        jax.errors.JaxRuntimeError("INVALID_ARGUMENT: x"),
        RuntimeError("x"),
        ImportError("x"),
        ValueError("x"),
    ):
        with pytest.raises(type(mistake)):
            exit_status(raising(mistake))
    assert exit_status(raising(ValueError("x")), bare_errors=True) == 2


def raising(error):
    """A program that fails."""

    def program():
        raise error

    return program


def test_usage_lines_and_examples_are_kept(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    usage, example = (
        "usage: prog RUN --a-long-option VALUE --another",
        "Example:\n  prog RUN --a-long-option VALUE --other",
    )
    assert wrapped(f"{usage}\n\n{example}").splitlines() == [usage, "", *example.splitlines()]


def test_a_table_has_two_columns_within_the_width(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    lines = table([("a", "short"), ("long name", "a meaning that needs a second line")]).splitlines()
    assert lines == ["  a          short", "  long name  a meaning that needs a", " " * 13 + "second line"]


def test_help_and_messages_need_no_jax():
    program = (
        "import sys, jaxnlp.cli.messages, jaxnlp.cli.options, jaxnlp.cli.programs; assert 'jax' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_on_a_full_disk_a_message_has_the_space_that_is_left_and_the_folder(tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda folder: shutil._ntuple_diskusage(10**9, 10**9 - 20_000, 20_000))
    error = OSError(errno.ENOSPC, "No space left on device", tmp_path / "metrics.jsonl")
    assert f"metrics.jsonl: no space left on device: 0.02 MB are free in {tmp_path}; free some space" in reason(error)
