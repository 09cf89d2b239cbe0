"""What the site adds to the pages of docs: reference, notebooks, links and formulas. `make docs` builds all of it."""

import json
import re

import pytest
import yaml

from docs import site_pages
from jaxnlp import models, ops


@pytest.fixture
def settings(root):
    """mkdocs.yml, without its tags of Python."""
    text = re.sub(r"!!python\S+", "", (root / "mkdocs.yml").read_text(encoding="utf-8"))
    return yaml.safe_load(text)


def leaves(nav):
    """Every page of a navigation."""
    if isinstance(nav, str):
        return [nav]
    return [page for entry in (nav.values() if isinstance(nav, dict) else nav) for page in leaves(entry)]


def test_every_module_has_one_page_of_the_reference():
    names = site_pages.modules()
    assert {"jaxnlp", "jaxnlp.ops", "jaxnlp.ops.attention", "jaxnlp.tasks.tagging.scores"} <= {*names}
    assert {f"jaxnlp.ops.{name}" for name in ops.__all__ if name.islower()} & {*names}
    assert not [name for name in names if "__" in name]
    assert sorted(leaves(site_pages.reference_nav())) == sorted(f"reference/{name}.md" for name in names)
    assert site_pages.reference_page("jaxnlp.ops") == "# jaxnlp.ops\n\n::: jaxnlp.ops\n"


def test_a_package_is_a_section_that_its_own_page_opens():
    sections = {title: entry for item in site_pages.reference_nav()[1:] for title, entry in item.items()}
    assert sections["models"][:2] == [
        "reference/jaxnlp.models.md",
        {"attention_lstm": "reference/jaxnlp.models.attention_lstm.md"},
    ]
    assert sections["runs"] == "reference/jaxnlp.runs.md"
    assert models.__name__ == "jaxnlp.models"


def test_every_page_is_in_the_navigation(root, settings):
    pages = {path.name for path in (root / "docs").glob("*.md")} | {*site_pages.PAGES.values(), "results.md"}
    assert {*leaves(settings["nav"])} == pages | {"notebooks", "reference"}


def test_the_site_needs_no_other_host(settings):
    assert settings["theme"]["font"] is False
    assert "offline" not in settings["plugins"]  # it loads a script from elsewhere
    assert settings["strict"] is True
    assert settings["use_directory_urls"] is False


@pytest.mark.parametrize(
    ("page", "link", "expected"),
    [
        ("index.md", "docs/bert.md#tasks", "bert.md#tasks"),
        ("index.md", "docs/images/report.png", "images/report.png"),
        ("index.md", "docs/notebooks/character_gpt.ipynb", "notebooks/character_gpt.md"),
        ("index.md", "LICENSE", "LICENSE.txt"),
        ("parsing.md", "results", "results.md"),
        ("your_own_model.md", "../CONTRIBUTING.md#adding-a-family", "contributing.md#adding-a-family"),
        ("attention.md", "../jaxnlp/ops/attention.py", "reference/jaxnlp.ops.attention.md"),
        ("attention.md", "../jaxnlp/ops/__init__.py", "reference/jaxnlp.ops.md"),
        ("notebooks/attention_by_hand.md", "../attention.md", "../attention.md"),
        ("bert.md", "#tasks", "#tasks"),
        ("bert.md", "https://example.org/docs/bert.md", "https://example.org/docs/bert.md"),
        ("bert.md", "../tests/pages.py", "../tests/pages.py"),  # MkDocs then says that it is missing
        ("bert.md", "../jaxnlp/no_such.py", "../jaxnlp/no_such.py"),
    ],
)
def test_links_lead_to_pages_of_the_site(page, link, expected):
    assert site_pages.relink(f"See [this]({link}).", page) == f"See [this]({expected})."


def test_quoted_code_has_its_file_as_title():
    text = "```python jaxnlp/ops/x.py\nx = 1\n```\n\n```python\n```\n\n```text\n```\n"
    assert site_pages.titled_fences(text) == text.replace(" jaxnlp/ops/x.py", ' title="jaxnlp/ops/x.py"')


def test_a_notebook_is_a_page(tmp_path):
    cells = [("markdown", ["# Title\n", "words"]), ("code", ["x = 1\n", "x"]), ("markdown", ["end"])]
    notebook = {"cells": [{"cell_type": kind, "source": source} for kind, source in cells]}
    (tmp_path / "a.ipynb").write_text(json.dumps(notebook), encoding="utf-8")
    title, note, code, end = site_pages.notebook_page(tmp_path / "a.ipynb").rstrip("\n").split("\n\n")
    assert title == "# Title\nwords"
    assert '<a href="a.ipynb" download>' in note
    assert code == "```python\nx = 1\nx\n```"
    assert end == "end"


def test_formulas_become_mathml():
    inline = site_pages.mathml(r'<p><span class="arithmatex">\(a &lt; b_t\)</span> end</p>')
    assert inline.startswith('<p><span class="arithmatex"><math')
    assert 'display="inline"' in inline
    assert "&#x0003C;" in inline
    assert inline.endswith("</math></span> end</p>")
    block = site_pages.mathml('<div class="arithmatex">\\[\nY = A V\n\\]</div>')
    assert 'display="block"' in block
    assert "\\[" not in block
    assert site_pages.mathml(r"<code>\(x\)</code>") == r"<code>\(x\)</code>"
