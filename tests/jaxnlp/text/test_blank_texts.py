import pytest

from jaxnlp.text.blank_texts import blank_rows, is_blank, refuse_blank, unless_blank


@pytest.mark.parametrize(
    ("row", "blank"),
    [
        *((("a",), False), (("",), True), ((" \n\t",), True), (("a", "b"), False), (("a", " "), True)),
        *((("\u200b\ufeff\u00a0\0",), True), (("\u200ba",), False), (("\U0001f600",), False)),
    ],
)
def test_a_row_is_blank_where_one_of_its_texts_is(row, blank):
    assert is_blank(row) is blank
    if blank:
        with pytest.raises(ValueError, match="the text is blank"):
            refuse_blank(row)
    else:
        refuse_blank(row)


def test_a_row_must_hold_texts():
    with pytest.raises(ValueError, match="expected a text, got list at index 0"):
        refuse_blank((["a"],))


def test_blank_rows_are_numbered_after_the_rows_before_them():
    assert blank_rows([("a", "b"), ("", ""), ("c", " ")], 10) == [12, 13]


def test_blank_rows_keep_their_place_with_the_empty_answer():
    asked = []

    def answers(rows):
        asked.append(rows)
        return [text.upper() for (text,) in rows]

    assert unless_blank([("a",), ("",), ("b",), (" ",)], answers, "none") == ["A", "none", "B", "none"]
    assert unless_blank([("",)], answers, "none") == ["none"]
    assert unless_blank([], answers, "none") == []
    assert asked == [[("a",), ("b",)]]
