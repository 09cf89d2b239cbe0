import re
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

from jaxnlp.inference.arguments import one_or_many, with_plain_kinds


@one_or_many
def joined(trained, inputs, pairs=None, *, end="."):
    """Joins."""
    assert isinstance(inputs, list)
    return [f"{trained}:{one}{end}" if pairs is None else f"{one}+{pairs[n]}" for n, one in enumerate(inputs)]


def test_one_input_gives_one_result_and_a_list_gives_a_list():
    assert joined("m", "ab") == "m:ab."
    assert joined("m", ["ab"]) == ["m:ab."]
    assert joined("m", ("ab", "c"), end="!") == ["m:ab!", "m:c!"]
    assert joined("m", Path("x.png")) == "m:x.png."
    assert [joined("m", one) for one in np.array(["ab", "c"])] == ["m:ab.", "m:c."]
    assert joined.__doc__ == "Joins."


def test_a_pair_is_given_as_its_first_text_is():
    assert joined("m", "a", "b") == "a+b"
    assert joined("m", "a", pairs="bc") == "a+bc"
    assert joined("m", ["a", "c"], ["b", "d"]) == ["a+b", "c+d"]
    for pairs in [("a", "b"), ("c", "d")], [["a", "b"], ["c", "d"]], np.array([["a", "b"], ["c", "d"]]):
        assert joined("m", pairs) == ["a+b", "c+d"]
    with pytest.raises(ValueError, match="joined: a list of inputs needs a list of second texts, got one text"):
        joined("m", ["a", "c"], "bd")


@pytest.mark.parametrize("pairs", [3, b"bd", {"b": 1, "d": 2}, {"b", "d"}, np.array("b")])
def test_second_texts_are_a_list_as_the_first_are(pairs):
    assert joined("m", ["a", "c"], iter(["b", "d"])) == ["a+b", "c+d"]
    with pytest.raises(ValueError, match=r"joined: expected one second text, or a list of them, got \w+"):
        joined("m", ["a", "c"], pairs)


def test_inputs_have_the_name_of_the_function_and_wrong_arguments_are_refused():
    assert joined("m", inputs="ab", end="!") == "m:ab!"
    method = with_plain_kinds(joined)
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'start'; its arguments are inputs, pairs, end$"):
        method("m", "ab", start="!")
    with pytest.raises(TypeError, match=r"^joined: missing a required argument: 'inputs'$"):
        method("m")


def test_a_misspelt_name_of_the_inputs_is_answered_with_theirs():
    with pytest.raises(
        TypeError, match=r"^joined: got an unexpected keyword argument 'texts'; its arguments are inputs"
    ):
        with_plain_kinds(joined)("m", texts=["ab"])


class Frame:
    """As pandas: two axes, and its items are the names of columns."""

    columns, shape, ndim = ("text", "stars"), (5, 2), 2

    def __iter__(self):
        return iter(self.columns)


def test_a_table_in_memory_is_neither_an_image_nor_a_list_of_the_names_of_its_columns():
    with pytest.raises(ValueError, match="got Frame; give one of its columns"):
        joined("m", Frame())
    with pytest.raises(ValueError, match="expected one second text, or a list of them, got Frame; give one of its col"):
        joined("m", ["ab"], Frame())


def test_an_image_is_one_input_and_several_are_several():
    seen = []

    @one_or_many
    def look(trained, images):
        seen.append(len(images))
        return images

    assert look(None, np.zeros((8, 8, 3))).shape == (8, 8, 3)
    assert look(None, jnp.zeros((8, 8))).shape == (8, 8)
    assert look(None, Image.new("L", (8, 9))).size == (8, 9)
    assert len(look(None, np.zeros((5, 8, 8, 3)))) == 5
    assert len(look(None, [Image.new("L", (8, 9))] * 2)) == 2
    assert seen == [1, 1, 1, 5, 2]


@pytest.mark.parametrize("inputs", [None, 3, b"a text", {"text": "a"}, np.array("a")])
def test_what_is_no_input_is_refused(inputs):
    got = r"(NoneType|int|bytes|dict|an array without axes; give its .item\(\))"
    with pytest.raises(ValueError, match=f"expected one input, or a list of them, got {got}$"):
        joined("m", inputs)


@pytest.mark.parametrize("kind", ["U", "O", "S", pytest.param("T", id="StringDType")])
def test_an_array_of_texts_is_a_list_of_texts_or_of_lists_of_words(kind):
    kind = np.dtypes.StringDType() if kind == "T" else kind
    assert len(joined("m", np.array(["a", "b", "c"], kind))) == 3
    assert len(joined("m", np.array([["a", "b"], ["c", "d"], ["e", "f"]], kind))) == 3


@pytest.mark.parametrize("value", ["yes", "", None, 1, [True]])
def test_what_is_true_or_false_is_neither_a_text_nor_a_number(value):
    @with_plain_kinds
    @one_or_many
    def look(trained, inputs, *, resize: bool = False):
        return [resize for _ in inputs]

    assert look(None, "a", resize=True) is True
    assert bool(look(None, "a", resize=np.bool_(False))) is False
    with pytest.raises(ValueError, match=rf"resize must be True or False, got (the text )?{re.escape(repr(value))}"):
        look(None, "a", resize=value)


@pytest.mark.parametrize("value", ["2", None, True, [2], 2.5])
def test_a_whole_number_is_a_number_and_may_be_an_array(value):
    @with_plain_kinds
    def attend(trained, text, *, count: int = 1, limit: float | None = None):
        return count, limit

    assert attend(None, "a", count=np.int32(3), limit=None) == (3, None)
    found = attend(None, "a", count=jnp.int32(3), limit=np.float32(0.5))
    assert found == (3, 0.5)
    assert [type(one) for one in found] == [int, float]  # the configs of options take no others
    with pytest.raises(ValueError, match=rf"count must be a whole number, got (the text )?{re.escape(repr(value))}"):
        attend(None, "a", count=value)
    with pytest.raises(ValueError, match="limit must be a number, got the text 'x'"):
        attend(None, "a", limit="x")
    with pytest.raises(TypeError, match="unexpected keyword argument 'limits'"):
        attend(None, "a", limits=3)
