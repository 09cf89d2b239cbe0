import dataclasses
import re
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import pytest
import tyro

from jaxnlp.cli.options import FLAT, LIKELY, field_docs, options_of, read_options, show_help, with_option_names
from jaxnlp.config import Config


@dataclasses.dataclass(frozen=True)
class Shape:
    """Shape of a model."""

    width: int = 3
    """A docstring that has
    two lines."""
    deep: bool = False


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
    pair: tuple[float, float] | None = None
    files: str | tuple[str, ...] | None = None
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
    assert found == Command(
        ("a text",), 4, 1.0, "linear", 7, ("sts", "sst"), "\n", Path("x/y"), None, None, True, Shape(5)
    )
    assert type(found.rate) is float
    assert read("--rate", "None", "--checkpoint", "latest") == Command(checkpoint="latest")


def test_several_parts_share_a_command_and_instances_give_defaults():
    command, loading = read_options([Command(steps=9), Loading], ["--folder", "x"], program="prog")
    assert (command, loading) == (Command(steps=9), Loading("x"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--steps", "many"], "--steps: expected a whole number, got 'many'"),
        (["--steps=1.5"], "--steps: expected a whole number, got '1.5'"),
        (["--rate", "high"], "--rate: expected a number or None, got 'high'"),
        (["--mode", "cosin"], "--mode: expected one of cosine, linear, got 'cosin'; did you mean cosine?"),
        (["--checkpoint", "bets"], "--checkpoint: expected a whole number or one of best, latest, got 'bets'; did you"),
        (["--many", "sst", "quora"], "--many: expected one of sst, sts, got 'quora'"),
        (["--pair", "1"], "--pair: expected FLOAT FLOAT or None, got 1"),
        (["--files"], "--files needs a value: one value or more"),
        (["--steps"], "--steps needs a value: a whole number"),
        (["--steps", "--json"], "--steps needs a value: a whole number"),
        (["--json", "True"], "--json takes no value, got 'True'; give --json or --no-json"),
        (["--shape.no-deep=1"], "--shape.no-deep takes no value, got '1'; give --shape.deep or --shape.no-deep"),
        (["--shape.widht", "3"], "there is no option --shape.widht; did you mean --shape.width?"),
        (["--qqqq", "3"], "there is no option --qqqq; see prog --help"),
        (["--json", "a", "--rate", "--steps", "3"], "--rate needs a value: a number or None"),
        (["-steps", "3"], "there is no option -steps; did you mean --steps?"),
    ],
    ids=str,
)
def test_a_wrong_option_is_refused_in_one_line_with_what_is_expected(arguments, message):
    with pytest.raises(ValueError, match=re.escape(message)) as refused:
        read(*arguments)
    assert "\n" not in str(refused.value)


def test_values_may_start_with_a_dash_and_words_after_two_dashes_are_texts():
    assert read("--rate", "-1e-3").rate == -1e-3
    assert read("--rate", "-inf").rate == float("-inf")
    assert read("--prompt=--x", "a").prompt == "--x"
    assert read("--", "-steps", "--rate").texts == ("-steps", "--rate")


def test_arguments_without_a_name_are_counted():
    @dataclasses.dataclass(frozen=True)
    class Copy:
        source: tyro.conf.Positional[Path]
        """Folder to copy."""
        target: tyro.conf.Positional[str | None] = None

    assert read_options([Copy], ["a", "b"], program="prog") == [Copy(Path("a"), "b")]
    with pytest.raises(ValueError, match=r"^SOURCE is missing: folder to copy; see prog --help$"):
        read_options([Copy], [], program="prog")
    with pytest.raises(ValueError, match=r"^unexpected 'c': options start with --; see prog --help$"):
        read_options([Copy], ["a", "b", "c"], program="prog")


def test_options_of_a_part_without_a_prefix_are_known():
    @dataclasses.dataclass(frozen=True)
    class Draw:
        shape: Annotated[Shape, FLAT] = dataclasses.field(default_factory=Shape)

    assert read_options([Draw], ["--width", "4"], program="prog") == [Draw(Shape(4))]
    with pytest.raises(ValueError, match=r"^there is no option --shape\.width; did you mean --width\?$"):
        read_options([Draw], ["--shape.width", "4"], program="prog")


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
    assert "--files TEXT ... (default: None)" in shown
    assert "--pair FLOAT FLOAT (default: None)" in shown
    assert "--folder TEXT (default: here)" in shown


@dataclasses.dataclass(frozen=True)
class Inner(Config):
    speed: int = 1
    memory: int = 2


@dataclasses.dataclass(frozen=True)
class Outer(Config):
    ignores: ClassVar[tuple[str, ...]] = ("inner.speed", "old")

    inner: Inner = dataclasses.field(default_factory=Inner)
    old: int = 3
    new: int = 4


def test_ignored_options_are_read_but_help_does_not_show_them(capsys):
    config = Outer()
    assert hidden_fields([config]) == {id(config): {"inner.speed", "old"}, id(config.inner): {"speed"}}
    assert read_options([config], ["--inner.speed", "5", "--old", "6"], program="prog") == [Outer(Inner(5), 6)]
    show_help([config], program="prog")
    printed = capsys.readouterr().out
    assert "--inner.memory" in printed
    assert "--new" in printed
    assert "--inner.speed" not in printed
    assert "--old" not in printed


def test_docstrings_of_fields_are_one_line_and_inherited():
    @dataclasses.dataclass(frozen=True)
    class Wide(Shape):
        height: int = 1
        """Another."""

    assert field_docs(Wide) == {"width": "A docstring that has two lines.", "height": "Another."}


def test_an_error_for_a_word_without_an_option_names_the_likely_one():
    @dataclasses.dataclass(frozen=True)
    class Write:
        steps: int = 1
        first_text: Annotated[str, LIKELY] = "x"

    assert read_options([Write], ["--first-text", "a b"], program="prog") == [Write(first_text="a b")]
    with pytest.raises(
        ValueError, match=r"^unexpected 'a b': options start with --; did you mean --first-text 'a b'\?$"
    ):
        read_options([Write], ["a b"], program="prog")
    with pytest.raises(ValueError, match=r"did you mean --steps\?$"):
        read_options([Write], ["step"], program="prog")


def test_the_error_of_a_dataclass_names_options():
    @dataclasses.dataclass(frozen=True)
    class Refusing(Config):
        inner: Inner = dataclasses.field(default_factory=Inner)
        old_name: int = 3

        def __post_init__(self):
            if self.old_name > 3:
                raise ValueError("old_name is above inner.memory; old is not, nor data/old_name or x.old_name.txt")

    message = "--old-name is above --inner.memory; old is not, nor data/old_name or x.old_name.txt"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        read_options([Refusing()], ["--old-name", "4"], program="prog")
    assert with_option_names("give --inner.speed 1.", [Refusing()]) == "give --inner.speed 1."
    assert with_option_names("set inner.speed.", [Refusing()]) == "set --inner.speed."
    assert with_option_names("a message", [Loading]) == "a message"
