import errno
import importlib
import io
import logging
import subprocess
import sys
import warnings
from pathlib import Path

import absl.logging
import pytest

from jaxnlp.cli.messages import (
    OURS,
    asks_for_help,
    logging_unchanged,
    reason,
    say_that_jax_loads,
    show_plain_warnings,
    summary_of,
    table,
    usage_text,
    wrapped,
)


def test_a_summary_is_the_first_sentence_of_a_docstring_in_one_line():
    class Cat:
        """Weighs 3.5 kg, if it
        is hungry. It sleeps."""

    assert summary_of(Cat) == summary_of(Cat()) == "Weighs 3.5 kg, if it is hungry."
    assert summary_of(type("Dog", (), {})) == ""


@pytest.mark.parametrize(
    ("arguments", "asks"),
    [
        ([], True),
        (["--help"], True),
        (["gpt", "--seed", "1", "-h"], True),
        (["gpt", "--help=model"], True),
        (["--list"], True),
        (["gpt", "--seed", "1"], False),
    ],
    ids=str,
)
def test_a_command_without_arguments_asks_for_help_too(arguments, asks):
    assert asks_for_help(arguments) is asks


def test_the_first_line_is_printed_before_jax_is_imported_and_for_no_help(monkeypatch):
    file = io.StringIO()
    say_that_jax_loads(["gpt"], file)  # JAX is imported here
    monkeypatch.delitem(sys.modules, "jax")
    say_that_jax_loads(["gpt", "--help"], file)
    assert file.getvalue() == ""
    say_that_jax_loads(["gpt"], file)
    assert file.getvalue() == "loading JAX\n"


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


def test_a_message_is_shown_once_although_a_program_asks_twice(monkeypatch, capsys):
    as_in_a_new_process(monkeypatch)
    show_plain_warnings()
    show_plain_warnings()
    for _ in range(2):
        logging.getLogger("jaxnlp.runs").warning("the checkpoint is damaged")
    assert capsys.readouterr().err == "warning: the checkpoint is damaged\n"


def test_libraries_leave_the_logging_of_a_users_program_alone(monkeypatch, capsys):
    as_in_a_new_process(monkeypatch)
    with logging_unchanged():
        absl.logging.vlog(1, "as Orbax does when it is imported")
        logging.getLogger("jaxnlp.runs").warning("shown as Python shows it")
    assert logging.getLogger().handlers == []
    assert capsys.readouterr().err == "shown as Python shows it\n"
    ours = logging.NullHandler()
    logging.getLogger().addHandler(ours)
    with logging_unchanged():
        assert logging.getLogger().handlers == [ours]
    assert logging.getLogger().handlers == [ours]


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
        (PermissionError(13, "Permission denied", Path("c")), "c: permission denied"),
        (FileNotFoundError("the recipe x does not exist"), "the recipe x does not exist"),
        (ValueError("2 is too many"), "2 is too many"),
        (
            OSError(errno.ENOSPC, "No space left on device", "a/b"),
            "a/b: no space left on device; free some space there, and repeat the command",
        ),
    ],
    ids=str,
)
def test_the_reason_of_an_error_has_no_number_of_the_system(error, message):
    assert reason(error) == message


def test_usage_is_wrapped_to_the_width_and_its_commands_kept(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    command = "usage: prog RUN --a-long-option VALUE --another"
    example = "Example:\n  prog RUN --a-long-option VALUE --another 3"
    assert usage_text(f"{command}\n\n{example}\n\nRUN is a folder with a long description here.").splitlines() == [
        command,
        "",
        *example.splitlines(),
        "",
        "RUN is a folder with a long description",
        "here.",
    ]


@pytest.mark.parametrize("module", ["train.evaluate", "train.sweep", "train.report.__main__"])
def test_usage_texts_fit_a_terminal_of_80_columns(monkeypatch, module):
    monkeypatch.setenv("COLUMNS", "80")
    printed = usage_text(importlib.import_module(module).USAGE)
    assert max(map(len, printed.splitlines())) <= 80


def test_a_table_has_two_columns_within_the_width(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    lines = table([("a", "short"), ("long name", "a meaning that needs a second line")]).splitlines()
    assert lines == ["  a          short", "  long name  a meaning that needs a", " " * 13 + "second line"]


def test_help_and_messages_need_no_jax():
    program = (
        "import sys, jaxnlp.cli.messages, jaxnlp.cli.options, jaxnlp.cli.checkout; assert 'jax' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
