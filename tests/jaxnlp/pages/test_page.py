from jaxnlp.pages.page import page


def test_titles_are_escaped_and_the_style_of_the_page_comes_last():
    found = page("a < b", "<p>text</p>", "p { color: red }")
    assert found.count("a &lt; b") == 2
    assert "a < b" not in found
    assert "p { color: red }</style>" in found
    assert "<p>text</p>\n</body>\n</html>" in found


def test_pages_fit_narrow_screens_and_load_nothing():
    found = page("x", "", "")
    assert '<meta name="viewport" content="width=device-width' in found
    assert "overflow-wrap: anywhere" in found
    assert not [part for part in ("http", "src=", "url(") if part in found]
