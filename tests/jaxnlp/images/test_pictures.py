import base64
import io

import numpy as np
import pytest
from PIL import Image

from jaxnlp.images.pictures import png


@pytest.mark.parametrize("channels", [1, 3])
def test_images_side_by_side_are_in_rows_and_what_is_between_them_is_transparent(channels):
    images = np.stack([np.full((2, 2, channels), 50 * n, np.uint8) for n in range(3)])
    with Image.open(io.BytesIO(base64.b64decode(png(images, columns=2, scale=4)))) as picture:
        pixels, opacity = np.asarray(picture.convert("L")), np.asarray(picture.getchannel("A"))
    assert pixels.shape == (5 * 4, 5 * 4)
    assert [pixels[4, 4], pixels[4, 16], pixels[16, 4]] == [0, 50, 100]
    assert [opacity[4, 4], opacity[4, 19], opacity[4, 9], opacity[16, 16]] == [255, 255, 0, 0]
