import dataclasses
import importlib
import pkgutil
import re
import typing
from pathlib import Path
from typing import Annotated, Literal

import pytest

import data
import jaxnlp
import train
from jaxnlp.config import Config, Count, Natural, NonNegative, Positive, ProperFraction, Rate, UserPath, Within
from jaxnlp.saving.serialization import to_json

Size = Literal["small", "large"]


@dataclasses.dataclass(frozen=True)
class Cup(Config):
    """A config with every kind of field that lists choices."""

    section = "cup"

    size: Size = "small"
    handle: Size | None = None
    number: Literal[1, 2] = 1
    described: Annotated[Size, "as the menu says"] = "small"
    set_of: tuple[Size, ...] = ()
    width: Size | int = 3
    colour: str = "any"
    volume: float | None = 0.5
    price: float | Size = 2.0
    marks: tuple[float, ...] = ()
    names: tuple[str, ...] = ()
    corners: tuple[int, int] | None = None
    lid: bool = False
    shelf: Path | None = None


@dataclasses.dataclass(frozen=True)
class TallCup(Cup):
    """A subclass with a check of its own."""

    height: int = 1

    def __post_init__(self):
        super().__post_init__()
        self.only_if(self.size == "large", "the size large", "height")
        self.only_if(self.size == "large", "cup.size large", "colour")


@pytest.mark.parametrize(
    "fields",
    [
        {"size": "larg"},
        {"size": None},
        {"handle": "none"},
        {"number": 3},
        {"number": True},
        {"number": 1.0},
        {"described": "medium"},
        {"set_of": ("small", "medium")},
        {"set_of": "small"},
        {"width": "wide"},
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", [Cup, TallCup])
def test_a_value_that_is_no_choice_is_refused_with_the_choices(kind, fields):
    ((name, value),) = fields.items()
    choices = "1, 2" if name == "number" else "small, large"
    with pytest.raises(ValueError, match=re.escape(f"cup.{name} must be one of {choices}, got {value!r}")):
        kind(**fields)
    with pytest.raises(ValueError, match="must be one of"):
        dataclasses.replace(kind(), **fields)


def test_every_choice_is_taken():
    cup = Cup("large", "small", 2, "large", ("small", "large"), "large", "blue")
    assert dataclasses.replace(cup, width=4, handle=None, set_of=()).width == 4


def test_a_whole_number_in_a_field_of_floats_is_a_float():
    cup = Cup(volume=1, price=3, marks=(1, 2.5), width=4)
    assert [type(value) for value in (cup.volume, cup.price, *cup.marks)] == [float] * 4
    assert type(cup.width) is int
    assert to_json(cup) == to_json(Cup(volume=1.0, price=3.0, marks=(1.0, 2.5), width=4))
    assert Cup(volume=None).volume is None


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"lid": "False"}, "cup.lid must be true or false, got 'False'"),
        ({"lid": 0}, "cup.lid must be true or false, got 0"),
        ({"colour": None}, "cup.colour must be a text, got None"),
        ({"colour": b"blue"}, "cup.colour must be a text, got b'blue'"),
        ({"volume": True}, "cup.volume must be a number or None, got True"),
        ({"marks": 1.0}, "cup.marks must be a list of values, each a number, got 1.0; give [1.0]"),
        ({"marks": [1, "2"]}, "cup.marks must be a list of values, each a number, got (1.0, '2')"),
        ({"names": "me.txt"}, "cup.names must be a list of values, each a text, got 'me.txt'; give ['me.txt']"),
        ({"corners": (1,)}, "cup.corners must be a list of 2 values, each a whole number or None, got (1,)"),
        ({"corners": (1, True)}, "cup.corners must be a list of 2 values, each a whole number or None, got (1, True)"),
    ],
    ids=str,
)
def test_a_value_of_another_type_is_refused(fields, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        Cup(**fields)


def test_lists_become_tuples_paths_texts_and_texts_paths():
    cup = Cup(set_of=["small"], marks=[1, 2.5], corners=[3, 4], colour=Path("a/b"), shelf="c")
    assert cup == Cup(set_of=("small",), marks=(1.0, 2.5), corners=(3, 4), colour="a/b", shelf=Path("c"))
    assert hash(cup) == hash(dataclasses.replace(cup))


@dataclasses.dataclass(frozen=True)
class Shelf(Config):
    """A config with paths as texts."""

    path: UserPath | None = None
    more: tuple[UserPath, ...] = ()
    title: str = ""


@pytest.mark.parametrize("fields", [{"path": ""}, {"more": ("a", "")}])
def test_an_empty_path_is_not_the_current_folder(fields):
    with pytest.raises(ValueError, match=r"(path|more) must be a path, got an empty text"):
        Shelf(**fields)
    assert Shelf(path=".", title="").path == "."


def test_a_close_choice_is_proposed():
    with pytest.raises(ValueError, match=r"got 'larg'; did you mean large\?$"):
        Cup(size="larg")


def test_names_have_the_section_of_the_command_line_in_front():
    @dataclasses.dataclass(frozen=True)
    class Plain(Config):
        size: Size = "small"

    assert (Cup.full_name("size"), Plain.full_name("size")) == ("cup.size", "size")


def test_a_field_that_nothing_reads_is_refused_unless_it_is_at_its_default():
    assert TallCup("large", height=5).height == 5
    assert TallCup("small").height == 1
    message = "cup.height applies only to the size large; set it to 1, got 5"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        TallCup("small", height=5)
    message = "cup.colour applies only to cup.size large; set cup.size large, or set cup.colour to 'any', got 'blue'"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        TallCup("small", colour="blue")


@pytest.mark.parametrize(("field", "what"), [("lids", "a whole number"), ("volume", "a number")])
def test_a_text_is_no_number(field, what):
    @dataclasses.dataclass(frozen=True)
    class LiddedCup(Cup):
        lids: int | None = None

    with pytest.raises(ValueError, match=f"^cup.{field} must be {what}, got the text '5'$"):
        LiddedCup(**{field: "5"})


@pytest.mark.parametrize("value", [2.5, 2.0])
@pytest.mark.parametrize("field", ["count", "natural"])
def test_a_fraction_is_no_whole_number(field, value):
    with pytest.raises(ValueError, match=f"^m.{field} must be a whole number, got {value}$"):
        Measures(**{field: value})


@dataclasses.dataclass(frozen=True)
class Measures(Config):
    """A config with every kind of bounds."""

    section = "m"

    count: Count | None = 1
    natural: Natural = 0
    few: Annotated[int, Within("(0, 3]")] = 1
    at_least: Annotated[float, Within("[1, inf)")] = 1.0
    rate: Rate = 0.0
    inner: ProperFraction = 0.5
    positive: Positive = 1.0
    not_negative: NonNegative = 0.0
    finite: Annotated[float, Within("(-inf, inf)")] = 0.0
    counts: tuple[Count, ...] = ()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"count": 0}, "m.count must be at least 1, got 0"),
        ({"count": 2**31}, "m.count must be less than 2147483648, got 2147483648"),
        ({"natural": -1}, "m.natural must be at least 0, got -1"),
        ({"natural": 10**18}, "m.natural must be less than 2147483648, got 1000000000000000000"),
        ({"few": 4}, "m.few must be at most 3, got 4"),
        ({"few": 0}, "m.few must be more than 0, got 0"),
        ({"at_least": 0.5}, "m.at_least must be at least 1 and finite, got 0.5"),
        ({"at_least": float("inf")}, "m.at_least must be at least 1 and finite, got inf"),
        ({"rate": 1.0}, "m.rate must be in [0, 1), got 1.0"),
        ({"rate": -0.1}, "m.rate must be in [0, 1), got -0.1"),
        ({"rate": float("nan")}, "m.rate must be in [0, 1), got nan"),
        ({"inner": 0}, "m.inner must be in (0, 1), got 0.0"),
        ({"inner": 1}, "m.inner must be in (0, 1), got 1.0"),
        ({"positive": 0}, "m.positive must be positive and finite, got 0.0"),
        ({"not_negative": float("inf")}, "m.not_negative must be finite and not negative, got inf"),
        ({"finite": float("-inf")}, "m.finite must be finite, got -inf"),
        ({"counts": (2, 0)}, "m.counts must be at least 1 each, got (2, 0)"),
    ],
    ids=str,
)
def test_a_number_outside_its_bounds_is_refused_with_them(fields, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        Measures(**fields)


def test_the_bounds_that_belong_to_an_interval_are_taken():
    assert Measures(count=None, rate=0, at_least=1, counts=(1, 2)).counts == (1, 2)


def subclasses(kind):
    return {kind, *(found for one in kind.__subclasses__() for found in subclasses(one))}


def test_a_field_that_a_subclass_declares_again_keeps_its_bounds():
    for package in (jaxnlp, data, train):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not found.name.endswith("__main__"):
                importlib.import_module(found.name)
    lost = []
    for kind in subclasses(Config) - subclasses(Cup) - {Measures}:
        for base in kind.__mro__[1:-1]:
            for name, hint in typing.get_type_hints(base, include_extras=True).items():
                mine = typing.get_type_hints(kind, include_extras=True)[name]
                if "Within" in repr(hint) and "Within" not in repr(mine):
                    lost.append(f"{kind.__name__}.{name}")
    assert not lost, ", ".join(sorted(lost))
