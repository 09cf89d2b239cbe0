"""Docstrings as the site's API reference shows them: plain text becomes Markdown. mkdocs.yml names this file."""

import re
from typing import Any

import griffe


def as_markdown(docstring: str) -> str:
    """A docstring whose examples, errors and arrays are Markdown."""
    text = re.sub(r"^( *)>>> (?:.*\S.*(?:\n|$))+", _fenced, docstring, flags=re.M)
    text = re.sub(r"^( *)Raises: (.+(?:\n\1 +\S.*)*)", _paragraph, text, flags=re.M)
    text = re.sub(r"^( +)(\w+(?:, \w+)+): (.*)$", _one_each, text, flags=re.M)
    # Two brackets in a row, [CLS] [SEP], would be a link in Markdown; lines that are indented further are code.
    return re.sub(r"^ {0,3}\S.*$", lambda line: re.sub(r"\]( ?)\[", r"]\1\\[", line[0]), text, flags=re.M)


def _fenced(example: re.Match[str]) -> str:
    indent, lines = example[1], example[0].removesuffix("\n")
    return f"{indent}```pycon\n{lines}\n{indent}```\n"


def _paragraph(section: re.Match[str]) -> str:
    """What is raised in one sentence, which griffe would take for a list."""
    indent, text = section[1], " ".join(line.strip() for line in section[2].splitlines())
    return f"{indent}**Raises:** {text}"


def _one_each(item: re.Match[str]) -> str:
    """An item for each of several arguments that one line describes."""
    return "\n".join(f"{item[1]}{name}: {item[3]}" for name in item[2].split(", "))


class MarkdownDocstrings(griffe.Extension):
    """Gives every docstring to `as_markdown`; griffe calls it."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Replaces the docstring of a module, class, function or attribute."""
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)
