import base64
import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest

from jaxnlp.tasks.bert_verbs.attention_page import render_page

NASTY = ["[CLS]", "</script>", "<script>alert(1)</script>", "<!--", "&lt;", "$data", "${x}", '"', "\u2028", "é中"]


class Page(HTMLParser):
    """Tags, and what is in each script, as a browser finds them."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.scripts, self.texts, self._open = [], [], [], None
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self._open = tag
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag):
        self._open = None

    def handle_data(self, data):
        if self._open == "script":
            self.scripts[-1] += data
        else:
            self.texts.append(data)


@pytest.fixture(scope="module")
def weights():
    logits = 3.0 * np.random.default_rng(0).standard_normal((2, 3, len(NASTY), len(NASTY)))
    return np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)


def test_the_page_holds_the_weights_and_tokens_whatever_they_are_written_like(weights):
    page = Page(render_page(NASTY, weights, title="</script><b>$style & $data", model="<i>mine</i>"))
    data, _ = page.scripts
    held = json.loads(data)
    assert (held["tokens"], held["layers"], held["heads"]) == (NASTY, 2, 3)
    found = np.frombuffer(base64.b64decode(held["weights"]), "<u2").reshape(weights.shape) / 65535
    np.testing.assert_allclose(found, weights, atol=0.51 / 65535)
    assert "</script><b>$style & $data" in page.texts
    assert "<i>mine</i>: 2 layers, 3 heads, 10 tokens" in "".join(page.texts)
    assert "b" not in {tag for tag, _ in page.tags}
    assert [attributes for tag, attributes in page.tags if tag == "script"] == [
        {"type": "application/json", "id": "data"},
        {},
    ]


def test_nothing_is_asked_of_the_network_and_both_colour_schemes_are_there(weights):
    page = render_page(NASTY, weights, title="x", model="y")
    assert not re.findall(r"(?:src|href|@import|url\(|fetch\(|https?:)", page)
    assert "prefers-color-scheme: dark" in page


def test_the_script_finds_every_part_of_the_page(weights):
    page = Page(render_page(NASTY, weights, title="x", model="y"))
    ids = {attributes["id"] for _, attributes in page.tags if "id" in attributes}
    asked = set(re.findall(r'(?:\bat|getElementById)\("(\w+)"\)', page.scripts[1]))
    assert asked == ids - {"large"}


def test_weights_of_other_pieces_are_refused(weights):
    with pytest.raises(ValueError, match=re.escape("expected weights [L, H, 9, 9], got [2, 3, 10, 10]")):
        render_page(NASTY[1:], weights, title="x", model="y")
