import dataclasses
import json
import pickle

import pytest

from jaxnlp.pages import blocks

CONTENTS = [
    blocks.Table(("word", "share"), (("a", 0.5), ("b", None)), marks=("good", "bad"), bars=(1,)),
    blocks.Lines((blocks.Line("loss", (1, 2), (3.0, 2.5)),), "step", "nats"),
    blocks.HeatMap(("a",), ("b", "c"), ((0.25, 0.75),)),
    blocks.MarkedText(((("a", True), ("b", False)),)),
    blocks.Picture("iVBORw0KGgoAAAANSUhEUg==", "a picture"),
]


@pytest.mark.parametrize("content", CONTENTS, ids=lambda content: type(content).__name__)
def test_contents_are_plain_data_that_is_equal_by_value_and_can_be_written_as_json(content):
    assert pickle.loads(pickle.dumps(content)) == content
    assert hash(dataclasses.replace(content)) == hash(content)
    assert json.loads(json.dumps(dataclasses.asdict(content)))


def test_every_kind_of_content_is_checked_here():
    kinds = {kind for kind in vars(blocks).values() if dataclasses.is_dataclass(kind)} - {blocks.Content, blocks.Line}
    assert kinds == set(map(type, CONTENTS))
