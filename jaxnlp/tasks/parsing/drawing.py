"""Dependency trees as text, and as arcs above the words in SVG and HTML.

An arc goes up from its head, then sideways at its level, then down to its dependent, with an arrow at the end. Its
level is above the levels of all arcs between its ends, so that arcs of a projective tree do not cross. At a word,
longer arcs are nearer to the middle. Words are far enough apart for the labels on the arcs.
"""

import html
from collections.abc import Sequence
from typing import NamedTuple

from jaxnlp.pages.page import page
from jaxnlp.tasks.parsing.scores import Tree

CHARACTER = 8.0
"""Width of a character of a word, in pixels; wide characters, such as Chinese ones, are twice as wide."""
LABEL_CHARACTER = 6.6
"""Width of a character of a label."""
GAP = 18.0
"""Minimum distance between two words."""
LEVEL = 30.0
"""Height of a level."""
SLOT = 7.0
"""Distance between two arcs at a word."""
MARGIN = 14.0

_STYLE = """
.tree text { font: 15px system-ui, "Segoe UI", Roboto, sans-serif; text-anchor: middle; fill: var(--ink, #1b1f24) }
.tree .tag { font-size: 11px; fill: var(--faint, #68737d) }
.tree .label { font-size: 11px; fill: var(--arc, #0067a3) }
.tree path { fill: none; stroke: var(--arc, #0067a3); stroke-width: 1.4 }
.tree .tip { fill: var(--arc, #0067a3); stroke: none }
.tree rect { fill: var(--paper, #fff) }
"""
_PAGE_STYLE = """
:root { --ink: #1b1f24; --faint: #68737d; --arc: #0067a3; --paper: #fff }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e9ec; --faint: #99a4ae; --arc: #6cc4f5; --paper: #16191d }
}
body { background: var(--paper); color: var(--ink) }
h2 { margin: 1.5em 0 .3em; font-size: 1rem; color: var(--faint); font-weight: 400 }
.scroll { overflow-x: auto; padding-bottom: 8px }
"""
_EXPLANATION = """<p>An arrow points from the head to the dependent, and its label is their relation. A word without a
head has the arrow of the root. Tags are below the words.</p>"""


class Drawn(NamedTuple):
    """A sentence to draw: its name, its words [n], their tags [n] or (), and its tree."""

    name: str
    words: Sequence[str]
    tags: Sequence[str]
    tree: Tree


def as_text(words: Sequence[str], tree: Tree) -> str:
    """The tree as text: each word has a line below its head, indented further. Dependents keep their order."""
    dependents: list[list[int]] = [[] for _ in range(len(words) + 1)]
    for word, head in enumerate(tree.heads, 1):
        dependents[head].append(word)
    lines: list[str] = []
    # A path to the word, not recursion: sentences may have hundreds of levels.
    waiting = [(word, "", "") for word in reversed(dependents[0])]
    while waiting:
        word, before, below = waiting.pop()
        lines.append(f"{before}{words[word - 1]}  {tree.relations[word - 1]} {word}")
        own = dependents[word]
        for index, child in reversed(list(enumerate(own))):
            last = index == len(own) - 1
            branch, under = ("└─ ", "   ") if last else ("├─ ", "│  ")
            waiting.append((child, below + branch, below + under))
    return "\n".join(lines) + "\n"


def arc_levels(heads: Sequence[int]) -> list[int]:
    """The level of each word's arc to its head, from 1; 0 for roots. Args: heads [n]."""
    arcs = sorted(
        (abs(word - head), min(word, head), max(word, head), word) for word, head in enumerate(heads, 1) if head
    )
    levels = [0] * len(heads)
    placed: list[tuple[int, int, int]] = []
    for _, left, right, word in arcs:
        # Crossing arcs of a tree that is not projective get separate levels, too.
        below = [level for a, b, level in placed if a < right and left < b]
        levels[word - 1] = 1 + max(below, default=0)
        placed.append((left, right, levels[word - 1]))
    return levels


def _width(text: str, character: float) -> float:
    return sum(2.0 if ord(one) > 0x2E7F else 1.0 for one in text) * character


def _offsets(heads: Sequence[int], levels: Sequence[int]) -> tuple[list[float], list[float]]:
    """The start of each word's arc, relative to the middle of its head, and its end, relative to the word's middle."""
    begins, ends = [0.0] * len(heads), [0.0] * len(heads)
    at: list[list[tuple[int, int, int, bool]]] = [[] for _ in range(len(heads) + 1)]
    for word, head in enumerate(heads, 1):
        if head:
            level = levels[word - 1]
            # Arcs at a word do not cross: to the left the lowest arc is first, to the right the highest.
            at[head].append((-1, level, word, False) if word < head else (1, -level, word, False))
            at[word].append((-1, level, word, True) if head < word else (1, -level, word, True))
        else:
            at[word].append((0, 0, word, True))
    for arcs in at:
        for slot, (_, _, word, is_end) in enumerate(sorted(arcs)):
            offset = (slot - (len(arcs) - 1) / 2.0) * SLOT
            (ends if is_end else begins)[word - 1] = offset
    return begins, ends


def _middles(one: Drawn, begins: Sequence[float], ends: Sequence[float]) -> list[float]:
    """The horizontal position of each word."""
    tags = one.tags or [""] * len(one.words)
    half = [
        max(_width(word, CHARACTER), _width(tag, LABEL_CHARACTER)) / 2.0
        for word, tag in zip(one.words, tags, strict=True)
    ]
    middles: list[float] = []
    for index in range(len(one.words)):
        least = MARGIN + half[0] if not middles else middles[-1] + half[index - 1] + half[index] + GAP
        for word, head in enumerate(one.tree.heads, 1):
            if head and max(word, head) == index + 1:
                left = min(word, head) - 1
                room = _width(one.tree.relations[word - 1], LABEL_CHARACTER) + 18.0
                from_left, from_right = begins[word - 1], ends[word - 1]
                if word < head:
                    from_left, from_right = from_right, from_left
                least = max(least, middles[left] + room + from_left - from_right)
        middles.append(least)
    return middles


def svg(one: Drawn, *, top: float = 0.0) -> tuple[str, float, float]:
    """A group with the drawing. Args: top: its upper edge. Returns: the group, its width and its height."""
    heads, relations = one.tree.heads, one.tree.relations
    levels = arc_levels(heads)
    begins, ends = _offsets(heads, levels)
    middles = _middles(one, begins, ends)
    base = top + MARGIN + (max(levels, default=0) + 1) * LEVEL
    paths, labels, texts = [], [], []
    for index, word in enumerate(one.words):
        head, end = heads[index], middles[index] + ends[index]
        if head:
            start, height = middles[head - 1] + begins[index], base - levels[index] * LEVEL
            turn = 6.0 if end > start else -6.0
            path = (
                f"M{start:.1f} {base:.1f}V{height + 6:.1f}Q{start:.1f} {height:.1f} {start + turn:.1f} {height:.1f}"
                f"H{end - turn:.1f}Q{end:.1f} {height:.1f} {end:.1f} {height + 6:.1f}V{base - 5:.1f}"
            )
            middle = (start + end) / 2.0
        else:
            middle, height = end, top + MARGIN
            path = f"M{end:.1f} {height:.1f}V{base - 5:.1f}"
        paths.append(f'<path d="{path}"/>')
        paths.append(f'<path class="tip" d="M{end - 3.5:.1f} {base - 6:.1f}h7l-3.5 6z"/>')
        room = _width(relations[index], LABEL_CHARACTER) + 8.0
        labels.append(f'<rect x="{middle - room / 2:.1f}" y="{height - 7:.1f}" width="{room:.1f}" height="14"/>')
        labels.append(_text(relations[index], middle, height + 4, "label"))
        texts.append(_text(word, middles[index], base + 18))
        if one.tags:
            texts.append(_text(one.tags[index], middles[index], base + 33, "tag"))
    width = middles[-1] + _width(one.words[-1], CHARACTER) / 2.0 + 4.0 * MARGIN if middles else 0.0
    group = f'<g class="tree">{"".join([*paths, *labels, *texts])}</g>'
    return group, width, base + 46.0 - top


def _text(text: str, x: float, y: float, kind: str = "") -> str:
    of_kind = f' class="{kind}"' if kind else ""
    return f'<text{of_kind} x="{x:.1f}" y="{y:.1f}">{html.escape(text)}</text>'


def _picture(groups: Sequence[str], width: float, height: float, *, style: str = "") -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}">{style}{"".join(groups)}</svg>'
    )


def as_svg(drawn: Sequence[Drawn]) -> str:
    """One picture with the sentences below each other, on white."""
    groups, width, height = [], 0.0, 0.0
    for one in drawn:
        group, own_width, own_height = svg(one, top=height)
        groups.append(group)
        width, height = max(width, own_width), height + own_height
    white = f'<rect width="{width:.0f}" height="{height:.0f}" fill="#fff"/>'
    return _picture([white, *groups], width, height, style=f"<style>{_STYLE}</style>") + "\n"


def as_html(drawn: Sequence[Drawn], name: str) -> str:
    """A page that loads no other file; long sentences scroll. Args: name: of the model."""
    parts = [_EXPLANATION]
    for one in drawn:
        group, width, height = svg(one)
        title = html.escape(f"{one.name}. {' '.join(one.words)}")
        parts.append(f'<h2>{title}</h2>\n<div class="scroll">{_picture([group], width, height)}</div>')
    return page(f"Trees of {name}", "\n".join(parts), _PAGE_STYLE + _STYLE)
