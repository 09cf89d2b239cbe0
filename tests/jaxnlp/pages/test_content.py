import base64
import dataclasses
import json
import pickle

import pytest

from jaxnlp.pages import content

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR").decode()
CONTENTS = [
    content.Table(("word", "share"), (("a", 0.5), ("b", None)), marks=("good", "bad"), bars=(1,)),
    content.Lines((content.Line("loss", (1, 2), (3.0, 2.5)),), "step", "nats"),
    content.HeatMap(("a",), ("b", "c"), ((0.25, 0.75),)),
    content.MarkedText(((("a", True), ("b", False)),)),
    content.Picture(PNG, "a picture"),
]


@pytest.mark.parametrize("content", CONTENTS, ids=lambda content: type(content).__name__)
def test_contents_are_plain_data_that_is_equal_by_value_and_can_be_written_as_json(content):
    assert pickle.loads(pickle.dumps(content)) == content
    assert hash(dataclasses.replace(content)) == hash(content)
    assert json.loads(json.dumps(dataclasses.asdict(content)))


def test_every_kind_of_content_is_checked_here():
    kinds = {kind for kind in vars(content).values() if dataclasses.is_dataclass(kind)}
    assert kinds - {content.Line, content.Content} == set(map(type, CONTENTS))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: content.Table(("a", "b"), (("c",),)), r"Table\.rows\[0\]: expected 2 cells, got 1"),
        (lambda: content.Line("a", (1.0, 2.0), (1.0,)), r"Line\.y: expected 2 values, got 1"),
        (lambda: content.HeatMap(("a",), ("b", "c"), ((1.0,),)), r"HeatMap\.weights\[0\]: expected 2 weights, got 1"),
        (lambda: content.Picture("aGk=", "a picture"), r"Picture\.png: the bytes are not a PNG file"),
    ],
)
def test_a_section_whose_fields_do_not_fit_is_refused_when_it_is_made(make, message):
    with pytest.raises(ValueError, match=message):
        make()
