"""Words shaded by their attention weights, on a page and in the report."""

import html
from collections.abc import Sequence

import numpy as np

from jaxnlp.commands.attention_page import VIEWPORT

STRONG = 1.5
"""The report marks words whose weight is at least this many times the weight of equally weighted words."""

_STYLE = """
:root { color-scheme: light dark; --heat: #0067a3 }
@media (prefers-color-scheme: dark) { :root { --heat: #6cc4f5 } }
body { margin: auto; max-width: 900px; padding: 24px; font: 16px/2 system-ui, "Segoe UI", Roboto, sans-serif }
span { padding: .15em .3em; border-radius: 4px;
  background: color-mix(in srgb, var(--heat) calc(.6 * var(--share)), transparent) }
h2 { margin: 1.5em 0 0; font-size: 1rem; color: GrayText; font-weight: 400 }
p { margin: 0; overflow-wrap: anywhere }
"""


def render_page(
    texts: Sequence[Sequence[str]], weights: Sequence[np.ndarray], captions: Sequence[str], name: str
) -> str:
    """A self-contained page.

    Args:
      texts: the tokens of each of N texts.
      weights: of the tokens of each text [T].
      captions: N of them.
      name: of the model.
    """
    paragraphs = []
    for tokens, shares, caption in zip(texts, weights, captions, strict=True):
        most = max(float(shares.max()), 1e-12)
        words = " ".join(
            f'<span style="--share: {100.0 * share / most:.0f}%" title="{share:.3f}">{html.escape(token)}</span>'
            for token, share in zip(tokens, shares, strict=True)
        )
        paragraphs.append(f"<h2>{html.escape(caption)}</h2>\n<p>{words}</p>")
    title = html.escape(f"Attention of {name}")
    return (
        f'<!doctype html>\n<html lang="en"><meta charset="utf-8">{VIEWPORT}<title>{title}</title>'
        f"<style>{_STYLE}</style>\n"
        f"<h1>{title}</h1>\n<p>A word is as dark as its weight, relative to the largest weight of its text.</p>\n"
        + "\n".join(paragraphs)
        + "\n</html>\n"
    )


def marked(tokens: Sequence[str], weights: np.ndarray) -> tuple[tuple[str, bool], ...]:
    """T tokens, each with whether its weight [T] is large, for a `MarkedText`."""
    return tuple((f"{token} ", bool(w * len(tokens) >= STRONG)) for token, w in zip(tokens, weights, strict=True))
