import dataclasses
import re
from pathlib import Path
from typing import Literal

import pytest
import tyro

from jaxnlp.options import field_docs, read_options, show_help


@dataclasses.dataclass(frozen=True)
class Shape:
    """Shape of a model."""

    width: int = 3
    """A docstring that has
    two lines."""


@dataclasses.dataclass(frozen=True)
class Command:
    """Does something."""

    texts: tyro.conf.Positional[tuple[str, ...]] = ()
    """Texts."""
    steps: int = 3
    rate: float | None = None
    mode: Literal["cosine", "linear"] = "cosine"
    checkpoint: int | Literal["best", "latest"] = "best"
    many: tuple[Literal["sst", "sts"], ...] = ()
    prompt: str = "\n"
    out: Path | None = None
    json: bool = False
    shape: Shape = dataclasses.field(default_factory=Shape)


@dataclasses.dataclass(frozen=True)
class Loading:
    """Loads something."""

    folder: str = "here"


def read(*arguments):
    return read_options([Command], arguments, program="prog")[0]


def flat(text):
    """A text without tyro's frames, in one line."""
    return " ".join(re.sub(r"[│╭╮╰╯─]", " ", text).split())


def test_values_have_the_types_of_their_fields():
    typed = ["a text", "--steps", "4", "--rate", "1", "--mode", "linear", "--checkpoint", "7", "--many", "sts", "sst"]
    found = read(*typed, "--out", "x/y", "--json", "--shape.width", "5")
    assert found == Command(("a text",), 4, 1.0, "linear", 7, ("sts", "sst"), "\n", Path("x/y"), True, Shape(5))
    assert type(found.rate) is float
    assert read("--rate", "None", "--checkpoint", "latest") == Command(checkpoint="latest")


def test_several_parts_share_a_command_and_instances_give_defaults():
    command, loading = read_options([Command(steps=9), Loading], ["--folder", "x"], program="prog")
    assert (command, loading) == (Command(steps=9), Loading("x"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--steps", "many"], "--steps: expected a whole number, got 'many'"),
        (["--steps", "1.5"], "--steps: expected a whole number, got '1.5'"),
        (["--rate", "high"], "--rate: expected a number or None, got 'high'"),
        (["--mode", "cosin"], "--mode: expected one of cosine, linear, got 'cosin'; did you mean cosine?"),
        (["--checkpoint", "bets"], "expected a whole number or one of best, latest, got 'bets'; did you mean best?"),
        (["--many", "sst", "quora"], "--many: expected one of sst, sts, got 'quora'"),
        (["--shape.widht", "3"], "Perhaps you meant: --shape.width INT"),
    ],
    ids=str,
)
def test_a_wrong_value_is_refused_with_what_is_expected(capsys, arguments, message):
    with pytest.raises(SystemExit) as stop:
        read(*arguments)
    assert stop.value.code == 2
    assert message in flat(capsys.readouterr().err)


@pytest.mark.parametrize("columns", [80, 120])
def test_help_has_the_docstrings_as_running_text_within_the_width(capsys, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    description = "One sentence of many words, which is longer than eighty columns, but not than a hundred and twenty."
    show_help([Command, Loading], program="prog", description=description)
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) <= columns
    assert (f"  {description}" in printed.splitlines()) is (columns == 120)
    shown = flat(printed)
    assert "--shape.width INT A docstring that has two lines. (default: 3)" in shown
    assert "--rate FLOAT (default: None)" in shown
    assert "[TEXT ...] Texts." in shown
    assert "(default: )" not in shown
    assert r"--prompt TEXT (default: '\n')" in shown
    assert "--folder TEXT (default: here)" in shown


def test_docstrings_of_fields_are_one_line_and_inherited():
    @dataclasses.dataclass(frozen=True)
    class Wide(Shape):
        height: int = 1
        """Another."""

    assert field_docs(Wide) == {"width": "A docstring that has two lines.", "height": "Another."}
