"""Pictures for reports and pages.

Axes: I rows or columns of an image, R channels.
"""

import base64
import io

import numpy as np
from PIL import Image


def png(images: np.ndarray, *, columns: int = 1, scale: int = 1) -> str:
    """Images in a grid, as a PNG file in base64.

    Args:
      images: [N, I, I, R] uint8.
      columns: number of images in a row.
      scale: factor by which they are enlarged.
    """
    count, size, _, channels = images.shape
    rows = -(-count // columns)
    page = np.full((rows * (size + 1), columns * (size + 1), channels), 255, np.uint8)
    for number, image in enumerate(images):
        top, left = (size + 1) * (number // columns), (size + 1) * (number % columns)
        page[top : top + size, left : left + size] = image
    picture = Image.fromarray(page.squeeze(-1) if channels == 1 else page)
    file = io.BytesIO()
    picture.resize((page.shape[1] * scale, page.shape[0] * scale), Image.Resampling.NEAREST).save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()
