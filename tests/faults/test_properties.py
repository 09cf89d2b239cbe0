"""What holds for every input: hypothesis looks for one for which it does not."""

import csv
import io
import itertools
import json
import os

import hypothesis
import pytest
from hypothesis import strategies as st

from jaxnlp.input_files.json_objects import parse_json
from jaxnlp.input_files.tables import Columns, Dialect, read_table, table_with
from jaxnlp.saving.atomic_files import write_file
from jaxnlp.text.byte_pairs import BytePairs
from jaxnlp.text.characters import CharacterVocabulary
from jaxnlp.text.tag_schemes import (
    PREFIXES,
    LabelledSpan,
    convert,
    find_scheme,
    illegal_positions,
    labels_of_spans,
    spans_of,
)

hypothesis.settings.register_profile("here", deadline=None, derandomize=True, database=None)
hypothesis.settings.load_profile("here")
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
"""Any text that UTF-8 can write, without the character that marks a binary file."""


@st.composite
def sentences(draw):
    """The number of words of a sentence, and entities that do not overlap."""
    cuts = sorted(draw(st.sets(st.integers(0, 12), max_size=8)))
    pairs = [pair for pair in itertools.pairwise(cuts) if draw(st.booleans())]
    return 12, [LabelledSpan(*pair, draw(st.sampled_from(["X", "Y-Z"]))) for pair in pairs]


@hypothesis.given(sentences(), st.sampled_from([scheme for scheme in PREFIXES if scheme != "io"]))
def test_entities_are_those_of_their_labels_in_every_scheme(sentence, scheme):
    length, spans = sentence
    labels = labels_of_spans(spans, length, scheme)
    assert spans_of(labels) == spans
    assert not illegal_positions(labels, scheme)
    for other in PREFIXES:
        if other != "io":
            assert convert(convert(labels, other), scheme) == labels
    if spans:
        assert spans_of(convert(labels, find_scheme([labels]))) == spans


@pytest.mark.thorough
@hypothesis.given(rows=st.lists(st.tuples(TEXTS, TEXTS, TEXTS), min_size=1, max_size=5), comma=st.sampled_from(",;\t"))
def test_a_table_is_read_as_csv_wrote_it_and_goes_out_with_all_its_cells(rows, comma, tmp_path_factory):
    file = tmp_path_factory.getbasetemp() / "table.csv"
    stream = io.StringIO(newline="")
    csv.writer(stream, delimiter=comma, quoting=csv.QUOTE_ALL).writerows([("id", "text", "label"), *rows])
    file.write_bytes(stream.getvalue().encode())
    dialect = Dialect(delimiter=comma, quotes="csv")
    found = read_table(file, Columns(("text",), "label"), dialect=dialect)
    assert [row.cells for row in found.rows] == [tuple(map(line_feeds, row)) for row in rows]
    cells = [row.cells for row in found.rows]
    file.write_text(table_with(found.source(found.rows), ["text"], [["x"]] * len(rows)), encoding="utf-8")
    again = read_table(file, Columns(("text",), "label"), dialect=Dialect(delimiter=",", quotes="csv"))
    assert again.columns == ("id", "text", "label", "text 2")
    assert [row.cells[:3] for row in again.rows] == cells


def line_feeds(text):
    """Line ends of all systems become line feeds."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)


@hypothesis.given(VALUES, st.booleans())
def test_json_is_read_as_it_was_written(value, ascii_only):
    assert parse_json(json.dumps(value, ensure_ascii=ascii_only)) == value


@pytest.fixture(scope="module")
def byte_pairs():
    return BytePairs.of(["the sea sings and the stone sinks"] * 4, 280)


@hypothesis.given(text=TEXTS)
def test_bytes_and_characters_of_any_text_come_back(text, byte_pairs):
    assert byte_pairs.decode(byte_pairs.encode(text, starts=False), starts=False) == text
    if text:
        characters = CharacterVocabulary.of(text)
        assert characters.decode(characters.encode(text)) == text


NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="/\0"), min_size=1).filter(
    lambda name: name not in (".", "..") and len(os.fsencode(name)) <= 255
)


@hypothesis.given(name=NAMES, content=st.binary())
def test_a_file_of_any_name_is_written_whole_and_nothing_else(name, content, tmp_path_factory):
    folder = tmp_path_factory.mktemp("names")
    write_file(folder / name, content)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {name: content}
