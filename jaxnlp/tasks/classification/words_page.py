"""Words shaded by their attention weights, on a page and in the report."""

import html
from collections.abc import Sequence

import numpy as np

from jaxnlp.pages.page import page

STRONG = 1.5
"""The report marks words with at least this many times the mean weight."""

_STYLE = """
:root { --heat: #0067a3 }
@media (prefers-color-scheme: dark) { :root { --heat: #6cc4f5 } }
body { max-width: 900px; line-height: 2 }
span { padding: .15em .3em; border-radius: 4px;
  background: color-mix(in srgb, var(--heat) calc(.6 * var(--share)), transparent) }
h2 { margin: 1.5em 0 0; font-size: 1rem; color: GrayText; font-weight: 400 }
p { margin: 0 }
"""
_EXPLANATION = """<p>The stronger the colour of a word, the larger its weight, relative to the largest weight of its
text. Move the pointer over a word to see its weight. Above each text is the prediction, with its probability if it is a
class.</p>"""


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
    return page(f"Attention of {name}", "\n".join([_EXPLANATION, *paragraphs]), _STYLE)


def marked(tokens: Sequence[str], weights: np.ndarray) -> tuple[tuple[str, bool], ...]:
    """T tokens, each with whether its weight [T] is large, for a `MarkedText`."""
    return tuple((f"{token} ", bool(w * len(tokens) >= STRONG)) for token, w in zip(tokens, weights, strict=True))
