"""Texts with coloured entities, as a page that loads no other file."""

import html
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from jaxnlp.pages.page import page

_STYLE = """
body { max-width: 900px; line-height: 2 }
mark { padding: .15em .3em; border-radius: 4px; color: inherit; background: hsl(var(--hue) 70% 50% / .3);
  box-decoration-break: clone; -webkit-box-decoration-break: clone }
mark b { margin-left: .4em; font-size: .7em; letter-spacing: .03em; color: hsl(var(--hue) 60% 35%) }
@media (prefers-color-scheme: dark) { mark b { color: hsl(var(--hue) 60% 75%) } }
p { margin: .8em 0 }
p + p { white-space: pre-wrap }
"""
_EXPLANATION = """Move the pointer over an entity to see its confidence: the lowest probability of the labels of its
words."""
GOLDEN_ANGLE = 137.5
"""Degrees between the hues of two successive types, so that their colours differ clearly."""


class Entity(NamedTuple):
    """An entity of a sentence.

    Attributes:
      start: its first character; or its first word, in a list of words.
      stop: the character, or the word, after its last one.
      type: its type; several kinds of tags are a dict by name, such as upos.
      confidence: the lowest probability of its words' labels.
      text: its characters; or its words, with blanks between them unless they are single characters.
    """

    start: int
    stop: int
    type: Any
    confidence: float
    text: str


def render_page(texts: Sequence[str], entities: Sequence[Sequence[Entity]], types: Sequence[str], name: str) -> str:
    """A page. Every text is escaped.

    Args:
      texts: N texts.
      entities: the entities of each text, in order; entities do not overlap.
      types: all types, in the order of their colours.
      name: the name of the model.
    """
    hues = {kind: round(index * GOLDEN_ANGLE + 210) % 360 for index, kind in enumerate(types)}
    used = {entity.type for row in entities for entity in row}
    legend = " ".join(_mark(kind, "", hues, "") for kind in types if kind in used)
    explanation = f"Types: {legend}. {_EXPLANATION}" if used else "No entities were found."
    paragraphs = [f"<p>{_paragraph(text, row, hues)}</p>" for text, row in zip(texts, entities, strict=True)]
    return page(f"Entities found by {name}", "\n".join([f"<p>{explanation}</p>", *paragraphs]), _STYLE)


def _paragraph(text: str, entities: Sequence[Entity], hues: Mapping[str, int]) -> str:
    parts, end = list[str](), 0
    for entity in entities:
        parts.append(html.escape(text[end : entity.start]))
        parts.append(_mark(text[entity.start : entity.stop], entity.type, hues, f"{entity.confidence:.2f}"))
        end = entity.stop
    return "".join([*parts, html.escape(text[end:])])


def _mark(text: str, kind: str, hues: Mapping[str, int], confidence: str) -> str:
    """A highlighted text. If `kind` is empty, the text is the name of a type, in its colour."""
    hue = hues[kind or text]
    title = f' title="{html.escape(kind)}, confidence {confidence}"' if confidence else ""
    label = f"<b>{html.escape(kind)}</b>" if kind else ""
    return f'<mark style="--hue: {hue}"{title}>{html.escape(text)}{label}</mark>'
