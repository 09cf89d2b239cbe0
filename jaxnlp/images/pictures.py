"""Pictures for reports and pages.

Axes: I rows or columns of an image, R channels.
"""

import base64
import io

import numpy as np
from PIL import Image


def png(images: np.ndarray, *, columns: int = 1, scale: int = 1) -> str:
    """Images in a grid, as a PNG file in base64, transparent between them.

    Args:
      images: [N, I, I, R] uint8.
      columns: number of images in a row.
      scale: factor of enlargement.
    """
    count, size, _, channels = images.shape
    rows = -(-count // columns)
    page = np.zeros((rows * (size + 1) - 1, columns * (size + 1) - 1, channels + 1), np.uint8)
    for index, image in enumerate(images):
        top, left = (size + 1) * (index // columns), (size + 1) * (index % columns)
        page[top : top + size, left : left + size, :-1] = image
        page[top : top + size, left : left + size, -1] = 255
    picture = Image.fromarray(page)
    file = io.BytesIO()
    picture.resize((page.shape[1] * scale, page.shape[0] * scale), Image.Resampling.NEAREST).save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()
