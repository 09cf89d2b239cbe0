import base64
import hashlib

from jaxnlp.pages.page import document, page


def test_titles_are_escaped_and_the_style_of_the_page_comes_last():
    found = page("a < b", "<p>text</p>", "p { color: red }")
    assert found.count("a &lt; b") == 2
    assert "a < b" not in found
    assert "p { color: red }</style>" in found
    assert "<p>text</p>\n</body>\n</html>" in found


def test_a_page_forbids_every_script_but_its_own():
    without = page("x", "<script>alert(1)</script>", "")
    assert "script-src 'none'" in without
    script = "document.title = '\u00e9'"
    found = document("x", "", "", script)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'; " in found
    assert f"<script>{script}</script>" in found
    for each in (without, found):
        assert """ content="default-src 'none'; style-src 'unsafe-inline'; img-src data:; """ in each


def test_pages_fit_narrow_screens_and_load_nothing():
    found = page("x", "", "")
    assert '<meta name="viewport" content="width=device-width' in found
    assert "overflow-wrap: anywhere" in found
    assert not [part for part in ("://", "src=", "url(") if part in found]


def test_no_text_turns_the_direction_of_the_words_around_it():
    turning = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
    found = page(f"a{turning}", f"<td>b{turning}</td><td>\u05d0\u200f</td>", "")
    assert not set(turning) & set(found)
    assert found.count("[U+202E]") == 3  # the browser's tab, the heading, the cell
    assert "<td>\u05d0\u200f</td>" in found  # marks turn nothing
