"""Pictures of a Vision Transformer's attention: each image, and the image with attention as brightness."""

import html
from collections.abc import Sequence

import numpy as np

from jaxnlp.images.pictures import png
from jaxnlp.pages.page import page

DARKEST = 0.15
"""Brightness of a patch without attention; the patch with the most attention has 1."""
PICTURE_PIXELS = 224
"""Size to which small images are enlarged on a page."""

_STYLE = """
body { max-width: 1100px }
figure { display: inline-block; margin: 0 24px 24px 0 }
img { display: inline-block; max-width: 100%; margin-right: 8px; image-rendering: pixelated; border-radius: 4px }
figcaption { color: GrayText }
"""
_EXPLANATION = """<p>Left is the image. Right is the same image, where a patch is as bright as its share in the
prediction: the attention of all layers, multiplied (attention rollout). Below are the file and the predicted class with
its probability.</p>"""


def lit(images: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """Images [N, I, I, R] uint8 with patches as bright as their shares of attention [N, I / patch, I / patch], relative
    to the image's largest share."""
    patch = images.shape[1] // shares.shape[1]
    light = DARKEST + (1.0 - DARKEST) * shares / shares.max(axis=(1, 2), keepdims=True)
    whole = light.repeat(patch, axis=1).repeat(patch, axis=2)
    return np.rint(images * whole[..., None]).astype(np.uint8)


def side_by_side(images: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """Each image, followed by itself with attention as brightness: [2 N, I, I, R] uint8."""
    return np.stack([images, lit(images, shares)], axis=1).reshape(-1, *images.shape[1:])


def render_page(images: np.ndarray, shares: np.ndarray, captions: Sequence[str], name: str) -> str:
    """A self-contained page.

    Args:
      images: [N, I, I, R] uint8.
      shares: of the attention [N, I / patch, I / patch].
      captions: N of them.
      name: of the model.
    """
    scale = max(1, PICTURE_PIXELS // images.shape[1])
    figures = []
    for image, share, caption in zip(images, shares, captions, strict=True):
        pair = png(side_by_side(image[None], share[None]), columns=2, scale=scale)
        text = html.escape(caption)
        figures.append(
            f'<figure><img src="data:image/png;base64,{pair}" alt="{text}"><figcaption>{text}</figcaption></figure>'
        )
    return page(f"Attention of {name}", "\n".join([_EXPLANATION, *figures]), _STYLE)
