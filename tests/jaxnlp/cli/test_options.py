import dataclasses
import re
from pathlib import Path
from typing import Annotated, Literal

import pytest
import tyro

from jaxnlp.cli.options import FLAT, LIKELY, field_docs, options_of, read_options, show_help, with_option_names
from jaxnlp.config import Config


@dataclasses.dataclass(frozen=True)
class Shape(Config):
    """Shape of a model."""

    width: int = 3
    """A docstring that has
    two lines."""
    deep: bool = False

    def __post_init__(self):
        super().__post_init__()
        if self.width > 9:
            raise ValueError("shape.width is above 9, and so is first_text")


@dataclasses.dataclass(frozen=True)
class Command:
    """Does something."""

    texts: tyro.conf.Positional[tuple[str, ...]] = ()
    """Texts."""
    steps: int = 3
    rate: float | None = None
    mode: Literal["cosine", "linear"] = "cosine"
    first_text: Annotated[str, LIKELY] = "\n"
    files: str | tuple[str, ...] | None = None
    sizes: tuple[int, ...] = (3,)
    slope: tuple[float, float] | None = None
    step: int | Literal["best", "latest"] = "latest"
    json: bool = False
    shape: Shape = dataclasses.field(default_factory=Shape)


@dataclasses.dataclass(frozen=True)
class Copy:
    """Copies something."""

    source: tyro.conf.Positional[Path]
    """Folder to copy."""
    target: tyro.conf.Positional[str | None] = None
    first_text: Annotated[str, LIKELY] = ""
    recipe: tyro.conf.Fixed[str] = "fixed"
    shape: Annotated[Shape, FLAT] = dataclasses.field(default_factory=Shape)


@dataclasses.dataclass(frozen=True)
class Loading:
    folder: str = ""
    """A docstring that has
    two lines."""


def read(*arguments, part=Command):
    return read_options([part], arguments, program="prog")[0]


@pytest.mark.parametrize(
    ("words", "fields"),
    [
        ("", {}),
        ("a b --steps 4 --json", {"texts": ("a", "b"), "steps": 4, "json": True}),
        ("--rate 1 --mode linear a", {"texts": ("a",), "rate": 1.0, "mode": "linear"}),
        ("--rate -1e-3", {"rate": -1e-3}),
        ("--rate -inf", {"rate": float("-inf")}),
        ("--first-text=--x a", {"first_text": "--x", "texts": ("a",)}),
        ("--first_text x", {"first_text": "x"}),
        ("--files a", {"files": "a"}),
        ("--files a b", {"files": ("a", "b")}),
        ("--files None --rate None", {}),
        ("--sizes", {"sizes": ()}),
        ("--sizes 1 2", {"sizes": (1, 2)}),
        ("--slope 4 0.5 --step best", {"slope": (4.0, 0.5), "step": "best"}),
        ("--slope None --step 7", {"step": 7}),
        ("-- -steps --rate", {"texts": ("-steps", "--rate")}),
        ("--shape.width 5 --shape.deep", {"shape": Shape(5, deep=True)}),
        ("--no-json --shape.no-deep", {}),
    ],
)
def test_words_become_fields(words, fields):
    assert read(*words.split()) == Command(**fields)


def test_several_parts_share_a_command_and_instances_give_defaults():
    command = Command(steps=9, shape=Shape(4))
    parts = read_options([command, Shape], ["--width", "5", "--shape.deep"], program="prog")
    assert parts == [Command(steps=9, shape=Shape(4, deep=True)), Shape(5)]


def test_arguments_without_a_name_and_options_without_a_prefix():
    assert read("a", "b", "--width", "4", part=Copy) == Copy(Path("a"), "b", shape=Shape(4))
    assert read("a", part=Copy(Path("z"), recipe="mine")) == Copy(Path("a"), recipe="mine")


@pytest.mark.parametrize(
    ("part", "words", "message"),
    [
        (Command, "--files", "--files needs a value"),
        (Command, "--shape.widht 3", "no option --shape.widht; did you mean --shape.width?"),
        (Command, "--width=3", "no option --width; did you mean --shape.width?"),
        (Command, "--qqqq 3", "no option --qqqq; see prog --help"),
        (Command, "-steps 3", "no option -steps; did you mean --steps?"),
        (Copy, "a --shape.width 4", "no option --shape.width; did you mean --width?"),
        (Copy, "a --recipe x", "no option --recipe; see prog"),
        (Copy, "a b width", "unexpected 'width': did you mean --width?"),
        (Copy, "a b c", "unexpected 'c': did you mean --first-text c?"),
        (Copy, "a b --deep True", "unexpected 'True': options that are true or false take no value; give --NAME or"),
        (
            Command,
            "--shape.width 10",
            "--shape.width is above 9, and so is --first-text",
        ),
    ],
    ids=str,
)
def test_a_wrong_command_is_refused_in_one_line_that_names_the_option(part, words, message):
    with pytest.raises(ValueError, match=re.escape(message)) as refused:
        read(*words.split(), part=part)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("part", "words", "option"),
    [
        (Command, "--steps", "--steps"),
        (Command, "--steps many", "--steps INT"),
        (Command, "--rate x", "--rate"),
        (Command, "--mode sine", "'--mode'. Expected one of"),
        (Command, "--shape.width=1.5", "--shape.width"),
        (Copy, "", "SOURCE"),
    ],
)
def test_a_value_that_is_missing_or_of_the_wrong_type_is_refused_by_tyro(capsys, part, words, option):
    with pytest.raises(SystemExit, match="2"):
        read(*words.split(), part=part)
    assert option in capsys.readouterr().err


@pytest.mark.parametrize("columns", [80, 120])
def test_help_has_the_docstrings_as_running_text_within_the_width(capsys, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    description = "One sentence of many words, which is longer than eighty columns, but not than a hundred and twenty."
    show_help([*options_of(Command)], program="prog", description=description)
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) <= columns
    assert (f"  {description}" in printed.splitlines()) is (columns == 120)
    shown = " ".join(re.sub(r"[│╭╮╰╯─]", " ", printed).split())
    for option in (
        "[[STR [STR ...]]] Texts.",
        "--shape.width INT A docstring that has two lines. (default: 3)",
        "--rate {None}|FLOAT (default: None)",
        r"--first-text STR (default: \n)",
        "--shape.deep, --shape.no-deep",
    ):
        assert option in shown
    assert "(default: )" not in shown


def test_names_in_an_error_become_options_where_they_are_no_words_of_the_text():
    message = "set first_text, shape.width or shape.width. Not steps, data/first_text or x.first_text.txt"
    shown = "set --first-text, --shape.width or --shape.width. Not steps, data/first_text or x.first_text.txt"
    assert with_option_names(message, [Command]) == shown


def test_docstrings_of_fields_are_one_line_and_inherited():
    @dataclasses.dataclass(frozen=True)
    class Wide(Loading):
        height: int = 1
        """Another."""

    assert field_docs(Wide) == {"folder": "A docstring that has two lines.", "height": "Another."}
