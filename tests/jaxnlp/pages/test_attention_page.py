import base64
import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest

from jaxnlp.pages.attention_page import MASKED, AttentionMaps, render_page

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


@pytest.fixture(scope="module")
def maps(weights):
    return [AttentionMaps(NASTY, NASTY, weights)]


def weights_of(part):
    """The weights that the page draws of a part; NaN where a mask hides."""
    whole = np.frombuffer(base64.b64decode(part["weights"]), "<u2")
    shape = (part["layers"], part["heads"], len(part["rows"]), len(part["columns"]))
    return np.where(whole == MASKED, np.nan, whole / (MASKED - 1)).reshape(shape)


def test_the_page_explains_the_signs_that_its_tokens_have():
    def explained(*tokens):
        weights = np.full((1, 1, len(tokens), len(tokens)), 1.0 / len(tokens))
        (line,) = [
            text
            for text in Page(
                render_page([AttentionMaps(list(tokens), list(tokens), weights)], title="", model="")
            ).texts
            if "attend to." in text
        ]
        return line.partition("attend to.")[2].strip()

    assert explained("a", "\u2423") == "In tokens, \u2423 is a space."
    assert (
        explained("[CLS]", "play", "##ing")
        == "In tokens, ## is a token inside a word, [CLS] is the start of the input."
    )
    assert explained("\u2581one", "</s>") == "In tokens, \u2581 is the space before a word, </s> is the end of a text."
    assert explained("a", "#") == ""


def test_the_page_holds_the_weights_and_tokens_whatever_they_are_written_like(maps, weights):
    page = Page(render_page(maps, title="</script><b>$style & $data", model="<i>mine</i>"))
    data, _ = page.scripts
    (held,) = json.loads(data)
    assert (held["rows"], held["columns"], held["square"]) == (NASTY, NASTY, True)
    np.testing.assert_allclose(weights_of(held), weights, atol=0.51 / (MASKED - 1))
    assert "</script><b>$style & $data" in page.texts
    assert "<i>mine</i>. 2 layers, 3 heads, 10 rows. " in "".join(page.texts)
    assert "b" not in {tag for tag, _ in page.tags}
    assert [attributes for tag, attributes in page.tags if tag == "script"] == [
        {"type": "application/json", "id": "data"},
        {},
    ]


def test_parts_of_a_model_have_their_names_and_what_a_mask_hides_is_no_weight(weights):
    visible = np.tri(len(NASTY), dtype=bool)
    causal = AttentionMaps(NASTY, NASTY, np.where(visible, weights, 0.0), "<decoder>", visible)
    cross = AttentionMaps(NASTY[:4], NASTY, weights[:1, :1, :4], "cross")
    page = Page(render_page([causal, cross], title="x", model="y"))
    first, second = json.loads(page.scripts[0])
    assert (first["name"], first["square"], second["name"], second["square"]) == ("<decoder>", True, "cross", False)
    found = weights_of(first)
    np.testing.assert_array_equal(np.isfinite(found), np.broadcast_to(visible, weights.shape))
    np.testing.assert_allclose(found[:, :, visible], weights[:, :, visible], atol=1e-5)
    np.testing.assert_allclose(weights_of(second), weights[:1, :1, :4], atol=1e-5)
    sizes = "<decoder>: 2 layers, 3 heads, 10 rows; cross: 1 layer, 1 head, 4 rows, 10 columns"
    assert sizes in "".join(page.texts)


def test_a_weight_of_1_is_not_taken_for_a_hidden_one():
    page = Page(render_page([AttentionMaps(["a"], ["a"], np.ones((1, 1, 1, 1)))], title="x", model="y"))
    np.testing.assert_array_equal(weights_of(json.loads(page.scripts[0])[0]), 1.0)


def test_nothing_is_asked_of_the_network_and_both_colour_schemes_are_there(maps):
    page = render_page(maps, title="x", model="y")
    assert not re.findall(r"(?:\bsrc=|\bhref=|@import|url\(|fetch\(|https?:)", page)
    assert "prefers-color-scheme: dark" in page


def test_the_script_finds_every_part_of_the_page(maps):
    page = Page(render_page(maps, title="x", model="y"))
    ids = {attributes["id"] for _, attributes in page.tags if "id" in attributes}
    asked = set(re.findall(r'(?:\bat|getElementById)\("(\w+)"\)', page.scripts[1]))
    assert asked == ids - {"large"}


def test_weights_of_other_tokens_are_refused(weights):
    with pytest.raises(ValueError, match=re.escape("expected weights [L, H, 9, 10], got [2, 3, 10, 10]")):
        render_page([AttentionMaps(NASTY[1:], NASTY, weights)], title="x", model="y")
    with pytest.raises(ValueError, match="a page about attention needs maps, got none"):
        render_page([], title="x", model="y")


def test_rows_and_columns_have_positions_and_latents_have_none(weights):
    whole = AttentionMaps(NASTY, NASTY, weights)
    last = AttentionMaps(["latent 1", "a"], NASTY, weights[:, :, :2], row_positions=(None, 10))
    first, second = json.loads(Page(render_page([whole, last], title="x", model="y")).scripts[0])
    assert first["rowPositions"] == first["columnPositions"] == list(range(1, len(NASTY) + 1))
    assert (second["rowPositions"], second["columnPositions"]) == ([None, 10], list(range(1, len(NASTY) + 1)))
    with pytest.raises(ValueError, match="expected 10 positions, one for each token, got 1"):
        render_page([whole._replace(row_positions=(1,))], title="x", model="y")


def test_the_sentence_about_a_row_and_the_bars_name_positions(maps):
    script = Page(render_page(maps, title="x", model="y")).scripts[1]
    assert 'at("where").textContent' in script
    assert 'make(bars, "small", position(part.columnPositions, place))' in script
