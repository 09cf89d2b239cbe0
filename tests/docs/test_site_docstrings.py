"""Docstrings become Markdown that says the same."""

import griffe
import pytest

from docs.site_docstrings import MarkdownDocstrings, as_markdown


@pytest.mark.parametrize(
    ("docstring", "expected"),
    [
        ("Says.\n\n>>> f(1)\n2\n>>> f(2)\n3\n\nMore.", "Says.\n\n```pycon\n>>> f(1)\n2\n>>> f(2)\n3\n```\n\nMore."),
        ("Says.\n\n>>> f(1)\n2", "Says.\n\n```pycon\n>>> f(1)\n2\n```\n"),
        (
            "Says.\n\nRaises: ValueError when\n  it is late.\n\nMore.",
            "Says.\n\n**Raises:** ValueError when it is late.\n\nMore.",
        ),
        ("Says. Raises: OSError.", "Says. Raises: OSError."),
        ("Raises:\n  ValueError: when it is late.", "Raises:\n  ValueError: when it is late."),
        ("Args:\n  q, k: arrays.\n  v: another.", "Args:\n  q: arrays.\n  k: arrays.\n  v: another."),
        ("Tokens [CLS] first [SEP] [CLS].", "Tokens [CLS] first [SEP] \\[CLS]."),
        ("As in\n\n    [x 1] [B; b]", "As in\n\n    [x 1] [B; b]"),
    ],
)
def test_docstrings_become_markdown(docstring, expected):
    assert as_markdown(docstring) == expected


def test_griffe_reads_the_result(tmp_path):
    (tmp_path / "module.py").write_text('def f(q, k):\n  """Says.\n\n  Args:\n    q, k: arrays [B, T].\n  """\n')
    extensions = griffe.load_extensions(MarkdownDocstrings)
    function = griffe.load("module", search_paths=[tmp_path], extensions=extensions)["f"]
    sections = function.docstring.parse("google", warn_missing_types=False)
    assert [(item.name, item.description) for item in sections[1].value] == [
        ("q", "arrays [B, T]."),
        ("k", "arrays [B, T]."),
    ]
