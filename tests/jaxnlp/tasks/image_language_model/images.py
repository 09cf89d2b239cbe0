"""Images of 4 x 4 pixels in four greys, their palette, and a model of them; and pictures as arrays."""

import base64
import io

import numpy as np
from PIL import Image

from data.image_pixels import palette_of
from jaxnlp.models.gpt import GPTConfig

IMAGES = np.random.default_rng(0).choice(np.uint8([0, 80, 160, 255]), (5, 4, 4, 1))
PALETTE = palette_of(IMAGES, 4)
CONFIG = GPTConfig(num_layers=1, num_heads=2, width=8, context_length=16)


def opened(picture: str) -> np.ndarray:
    """The brightness of a PNG file in base64."""
    with Image.open(io.BytesIO(base64.b64decode(picture))) as image:
        return np.asarray(image.convert("L"))
