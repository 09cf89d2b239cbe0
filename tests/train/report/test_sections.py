import base64
import dataclasses
import json
import math
import re
from html.parser import HTMLParser

import jax.numpy as jnp
import numpy as np
import pytest

from jaxnlp.pages.content import Content, HeatMap, Line, Lines, MarkedText, Picture, Table
from train.report.sections import (
    MAX_ROWS,
    LoggedSection,
    render_sections,
    render_table,
    section_from_json,
    section_to_json,
)

HOSTILE = "<script>alert('&\"')</script>"
PNG = base64.b64encode(
    base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")
).decode()
TABLE = Table(("word", "share"), (("a", 0.25), ("b", None)))
LINES = Lines((Line("one", (1.0, 2.0), (3.0, 4.0)),), "position", "Perplexity")
HEAT = HeatMap(("R", "o"), ("A", "d", "a"), ((0.1, 0.4, 0.0), (0.0, 0.0, 0.0)))
MARKED = MarkedText(((("The ", True), ("cat", False)),))
PICTURE = Picture(PNG, "filters")
LINE = {"type": "jaxnlp.pages.content:Line", "name": "a", "x": [1, 2], "y": [1, 2]}
ALL_KINDS = [TABLE, LINES, HEAT, MARKED, PICTURE]


def rendered(content, name="section", keep="latest", step=5):
    return render_sections([LoggedSection(step, name, keep, content)])


def line_of(content, **changes):
    """A line of sections.jsonl, as JSON reads it back, with fields of the content replaced."""
    row = json.loads(json.dumps(section_to_json(LoggedSection(5, "section", "latest", content))))
    return row | {"content": row["content"] | changes}


@pytest.mark.parametrize("content", ALL_KINDS, ids=lambda content: type(content).__name__)
def test_a_section_of_each_kind_is_read_back_equal(content):
    assert section_from_json(line_of(content)) == LoggedSection(5, "section", "latest", content)


def test_numbers_of_numpy_and_jax_are_saved_as_plain_ones():
    table = Table(("a", "b", "c"), ((np.float32(0.5), np.int64(3), jnp.float32(2.0)),))
    assert section_to_json(LoggedSection(1, "t", "latest", table))["content"]["rows"] == [[0.5, 3, 2.0]]
    heat = HeatMap(("r",), ("c", "d"), np.array([[0.25, 0.5]]))
    assert section_to_json(LoggedSection(1, "h", "latest", heat))["content"]["weights"] == [[0.25, 0.5]]


def test_values_that_are_not_finite_or_beyond_floats_can_be_saved_and_drawn():
    for content in (
        Table(("a", "b"), ((math.nan, math.inf),), bars=(0, 1)),
        Table(("a", "b"), ((10**400, -(10**400)),), bars=(0,)),
        Lines((Line("l", (1.0, 2.0), (math.nan, -math.inf)),), "x", "y"),
        HeatMap(("r", "s"), ("c", "d"), ((math.nan, 0.5), (math.inf, -1.0))),
    ):
        assert "section" in rendered(section_from_json(line_of(content)).content)


@pytest.mark.parametrize(
    ("content", "changes", "message"),
    [
        (TABLE, {"rows": [["a"]]}, r"content: Table\.rows\[0\]: expected 2 cells, got 1"),
        (TABLE, {"rows": [["a", ["b"]]]}, r"content\.rows\[0\]\[1\]: expected str \| int \| float \| None"),
        (TABLE, {"rows": [["a", True]]}, r"content\.rows\[0\]\[1\]: expected .*, got True"),
        (TABLE, {"rows": 7}, r"content\.rows: expected a list, got 7"),
        (TABLE, {"marks": ["good"]}, r"content: Table\.marks: expected 2 marks, got 1"),
        (TABLE, {"marks": ["good", "great"]}, r"content\.marks\[1\]: expected one of good, bad, , got 'great'"),
        (TABLE, {"bars": [2]}, r"content: Table\.bars: there is no column 2 among 2"),
        (TABLE, {"folded": "yes"}, r"content\.folded: expected bool, got 'yes'"),
        (TABLE, {"colour": "red"}, r"content: Table has no field colour"),
        (LINES, {"lines": [LINE | {"y": [1]}]}, r"content\.lines\[0\]: Line\.y: expected 2 values, got 1"),
        (LINES, {"lines": [LINE | {"y": [1, 10**400]}]}, r"content\.lines\[0\]\.y\[1\]: expected float, got 1000"),
        (LINES, {"lines": [{name: LINE[name] for name in ("type", "name", "x")}]}, r"content\.lines\[0\]: .*'y'"),
        (LINES, {"lines": ["a"]}, r"content\.lines\[0\]: expected an object .*, got 'a'"),
        (HEAT, {"rows": ["R"]}, r"content: HeatMap\.weights: expected 1 rows, got 2"),
        (HEAT, {"columns": ["A"]}, r"content: HeatMap\.weights\[0\]: expected 1 weights, got 3"),
        (MARKED, {"paragraphs": [[["a"]]]}, r"content\.paragraphs\[0\]\[0\]: expected 2 items, got 1"),
        (MARKED, {"paragraphs": [[["a", 1]]]}, r"content\.paragraphs\[0\]\[0\]\[1\]: expected bool, got 1"),
        (PICTURE, {"png": "???"}, r"content: Picture\.png: not base64"),
        (PICTURE, {"png": base64.b64encode(b"<svg onload='x'>").decode()}, r"content: Picture\.png: .* not a PNG file"),
    ],
)
def test_a_malformed_field_is_named(content, changes, message):
    with pytest.raises(ValueError, match=message):
        section_from_json(line_of(content, **changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"content": {"type": "jaxnlp.pages.content:Video"}}, r"'jaxnlp\.pages\.content:Video' does not exist"),
        ({"content": {"type": "jaxnlp.pages.content:Content"}}, r"cannot draw a Content"),
        ({"content": {"type": "train.report.sections:LoggedSection"}}, r"expected a Content, got a LoggedSection"),
        ({"content": {"type": ["Table"]}}, r"section\.content: type \['Table'\] is not in a trusted package"),
        ({"step": "5"}, r"step: expected int, got '5'"),
        ({"name": 5}, r"name: expected str, got 5"),
        ({"keep": "some"}, r"keep: expected one of latest, all, got 'some'"),
        ({"content": 5}, r"content: expected an object .*, got 5"),
    ],
)
def test_a_malformed_line_is_named(changes, message):
    with pytest.raises(ValueError, match=message):
        section_from_json(line_of(TABLE) | changes)
    with pytest.raises(ValueError, match=r"section: .*'content'"):
        section_from_json({name: field for name, field in line_of(TABLE).items() if name != "content"})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a text", r"section 'b': section\.content: expected an object .*, got 'a text'"),
        (Table, r"section 'b': type cannot be saved as JSON"),
        (Table(("a",), ((object(),),)), r"section 'b': object cannot be saved as JSON"),
        (Content(), r"section 'b': the report cannot draw a Content"),
    ],
)
def test_a_section_that_cannot_be_drawn_is_refused_before_it_is_saved(content, message):
    with pytest.raises(ValueError, match=message):
        section_to_json(LoggedSection(1, "b", "latest", content))


KNOWN_TAGS = """section h2 small div details summary p table caption thead tbody tr th td span pre b figure img
svg g path defs use text clippath rect"""
KNOWN_ATTRIBUTES = """class style scope title open src alt viewbox role aria-label
id d href x y width height transform clip-path"""


class Elements(HTMLParser):
    """The names of all elements and attributes of a page."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.attributes = set(), set()
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attributes}


HOSTILE_SECTIONS = [
    Table((HOSTILE, HOSTILE), ((HOSTILE, HOSTILE), (0.5, HOSTILE)), ("good", "bad"), (1,), HOSTILE, True),
    Lines((Line(HOSTILE, (1.0, 2.0), (3.0, 4.0)),), HOSTILE, HOSTILE, HOSTILE),
    HeatMap((HOSTILE,), (HOSTILE, HOSTILE), ((0.5, 1.0),), HOSTILE, HOSTILE),
    MarkedText((((HOSTILE, True), (HOSTILE, False)),), HOSTILE),
    Picture(PNG, HOSTILE, HOSTILE),
]


@pytest.mark.parametrize("keep", ["latest", "all"])
@pytest.mark.parametrize("content", HOSTILE_SECTIONS, ids=lambda content: type(content).__name__)
def test_every_text_of_every_kind_is_escaped(content, keep):
    page = rendered(content, HOSTILE, keep)
    assert "<script" not in page
    found = Elements(page)
    assert found.tags <= set(KNOWN_TAGS.split())
    assert found.attributes <= set(KNOWN_ATTRIBUTES.split())
    texts = sum(str(value).count("<script") for value in dataclasses.asdict(content).values())
    assert page.count("&lt;script&gt;") >= texts + 1  # and the name of the section


def test_a_picture_of_other_bytes_cannot_reach_the_page():
    with pytest.raises(ValueError, match="not base64"):
        rendered(Picture('" onerror="alert(1)', "a"))


def test_only_the_newest_step_of_a_name_is_shown_with_all_its_sections():
    sections = [
        LoggedSection(step, name, "latest", MarkedText((((f"{name} {step} {n}", False),),)))
        for step in (1, 2)
        for name in ("one", "two")
        for n in (1, 2)
    ]
    page = render_sections(
        [
            *sections,
            LoggedSection(
                3,
                "one",
                "latest",
                MarkedText(
                    (("one 3", False),),
                ),
            ),
        ][:-1]
    )
    assert re.findall(r"<pre>(.*?)</pre>", page) == ["one 2 1", "one 2 2", "two 2 1", "two 2 2"]
    assert re.findall(r"<h2>(\w+) <small>step (\d+)</small></h2>", page) == [("one", "2"), ("two", "2")]


def test_sections_kept_over_all_steps_are_newest_first_and_only_the_newest_is_open():
    sections = [
        LoggedSection(step, "Samples", "all", MarkedText((((f"{step}", False),),))) for step in (50, 1000, 2000, 2000)
    ]
    folds = re.findall(r"<details( open)?><summary>Step ([\d,]+)</summary>(.*?)</details>", render_sections(sections))
    assert [(bool(is_open), step) for is_open, step, _ in folds] == [(True, "2,000"), (False, "1,000"), (False, "50")]
    assert [body.count("<pre>") for _, _, body in folds] == [2, 1, 1]


def test_of_very_many_steps_an_even_choice_is_shown_and_the_page_says_so():
    sections = [
        LoggedSection(step, "Samples", "all", MarkedText((((f"sample {step}.", False),),))) for step in range(1, 101)
    ]
    page = render_sections(sections)
    assert "sample 100." in page
    assert "34 of 100 steps" in page
    assert page.count("<details") == 34


def test_a_table_formats_numbers_marks_rows_and_draws_shares_as_bars():
    table = Table(
        ("given", "share", "count"), (("Rome", 0.25, 1234), ("Oslo", 1.5, None)), ("good", "bad"), (1,), "A note."
    )
    page = rendered(table)
    cells = [re.findall(r"<td[^>]*>(.*?)</td>", line) for line in re.findall(r"<tr>(.*?)</tr>", page)[1:]]
    assert [[re.sub(r"<[^>]*>", "", cell) for cell in line] for line in cells] == [
        ["&#10003;", "Rome", "25.0%", "1,234"],
        ["&#10007;", "Oslo", "150.0%", ""],
    ]
    assert re.findall(r"width: ([\d.]+)%", page) == ["25.0", "100.0"]
    assert re.findall(r'class="mark (\w+)"', page) == ["good", "bad"]
    assert "<p>A note.</p>" in page
    assert "<details" not in page


def test_a_folded_table_is_closed_and_says_how_many_rows_it_has():
    assert "<details><summary>2 rows</summary><table>" in rendered(dataclasses.replace(TABLE, folded=True))


def test_a_long_table_shows_its_first_rows():
    table = Table(("n",), tuple((f"row {n}",) for n in range(MAX_ROWS + 50)), ("good",) * (MAX_ROWS + 50))
    page = rendered(table)
    assert f"row {MAX_ROWS - 1}<" in page
    assert f"row {MAX_ROWS}<" not in page
    assert "The first 200 of 250 rows" in page


def test_a_heat_map_shades_each_row_by_its_own_largest_weight():
    page = rendered(dataclasses.replace(HEAT, title="given Rome"))
    lines = re.findall(r'<tr><th scope="row">(.)</th><td>(.*?)</td></tr>', page)
    assert [name for name, _ in lines] == ["R", "o"]
    shades = [re.findall(r'--share: (\d+)%">(.)<', line) for _, line in lines]
    assert shades == [[("25", "A"), ("100", "d"), ("0", "a")], [("0", "A"), ("0", "d"), ("0", "a")]]
    assert "<caption>given Rome</caption>" in page
    assert 'class="heat"' in page
    assert 'class="heat words"' in rendered(HeatMap(("r",), ("token",), ((1.0,),)))


def test_marked_text_keeps_its_white_space_and_sets_highlights_apart():
    page = rendered(MarkedText(((("\nThe  ", True), ("cat\n\tsat &\n  smiled", False)), (("x", False),))))
    assert "<pre><b>\nThe  </b>cat\n\tsat &amp;\n  smiled</pre><pre>x</pre>" in page
    # HTML drops the first line feed of <pre>.
    assert "<pre>\n\nx</pre>" in rendered(MarkedText(((("\nx", False),),)))


def test_a_picture_is_part_of_the_page():
    page = rendered(dataclasses.replace(PICTURE, note="Filters."))
    assert f'<img src="data:image/png;base64,{PNG}" alt="filters">' in page
    assert "<p>Filters.</p>" in page


def test_lines_are_drawn_with_a_label_and_ids_of_their_own():
    sections = [LoggedSection(1, name, "latest", LINES) for name in ("one", "two")]
    page = render_sections(sections)
    assert re.findall(r'aria-label="(.*?)"', page) == [f"{name}: Perplexity by position" for name in ("one", "two")]
    ids = re.findall(r'\bid="(.*?)"', page)
    assert len(ids) > 10
    assert len(ids) == len(set(ids))


def test_the_first_cells_of_a_table_can_be_links():
    drawn = render_table(Table(("run", "loss"), (("<a>", 1.0), ("b", 2.0))), ("a&b.html", None))
    assert '<td><a href="a&amp;b.html">&lt;a&gt;</a></td>' in drawn
    assert drawn.count("<a ") == 1


def test_only_long_texts_have_a_column_of_a_minimum_width_and_a_share_of_0_has_no_bar():
    drawn = rendered(Table(("text", "share"), (("word " * 9, 0.0), ("word", 0.001)), bars=(1,)))
    assert re.findall("<td([^<>]*)>word", drawn) == [' class="long"', ""]
    assert drawn.count('class="bar"') == 1


def test_content_of_another_kind_is_refused():
    with pytest.raises(TypeError, match="a section of the report cannot be a Content; give one of the kinds in"):
        rendered(Content())
