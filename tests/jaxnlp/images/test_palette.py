import dataclasses

import numpy as np
import pytest
from scipy.cluster.vq import vq

from jaxnlp.images.palette import START, Palette, sequences
from jaxnlp.images.preprocessing import Preprocessing
from jaxnlp.images.processor import ImageProcessor

GREY = Palette(ImageProcessor(2, 1, (0.0,), (1.0,), ()), ((0,), (100,), (255,)))
DRAW = np.random.default_rng(0)
COLOURS = Palette(
    ImageProcessor(4, 3, (0.0,) * 3, (1.0,) * 3, ()), tuple(map(tuple, DRAW.integers(0, 256, (40, 3)).tolist()))
)


def test_each_pixel_is_its_nearest_colour():
    images = DRAW.integers(0, 256, (50, 4, 4, 3), dtype=np.uint8)
    ids = COLOURS.encode(images)
    _, nearest = vq(images.reshape(-1, 3).astype(float), np.array(COLOURS.colours, float))
    pixels = images.reshape(50, 16, 3).astype(float)
    distances = np.sqrt(np.square(pixels - np.array(COLOURS.colours, float)[ids]).sum(axis=-1))
    np.testing.assert_allclose(distances, nearest.reshape(50, 16))


def test_images_in_colours_of_the_palette_are_the_same_after_both_ways():
    ids = DRAW.integers(0, COLOURS.size, (5, COLOURS.pixels))
    np.testing.assert_array_equal(COLOURS.encode(COLOURS.decode(ids)), ids)
    image = np.array([[0, 49], [51, 255]], np.uint8)  # row by row
    assert GREY.encode(image[None, ..., None]).tolist() == [[0, 0, 1, 2]]
    np.testing.assert_array_equal(GREY.decode(np.array([[0, 0, 1, 2]]))[0, ..., 0], [[0, 0], [100, 255]])


def test_the_first_of_equally_near_colours_is_taken():
    assert GREY.encode(np.full((1, 2, 2, 1), 50, np.uint8)).tolist() == [[0] * 4]


def test_each_pixel_follows_the_one_before_it_and_the_first_follows_the_start():
    found = sequences(np.array([[3, 1, 2]], np.uint16))
    assert {name: (x.tolist(), x.dtype) for name, x in found.items()} == {
        "tokens": ([[START, 3, 1]], np.int32),
        "targets": ([[3, 1, 2]], np.int32),
    }


def test_called_it_makes_the_inputs_of_a_model():
    image = np.array([[255, 0], [101, 7]], np.uint8)
    np.testing.assert_array_equal(GREY(image)["tokens"], [[START, 2, 0, 1]])
    assert GREY([image, image])["tokens"].shape == (2, 4)


def test_a_palette_is_equal_after_json():
    scaled = dataclasses.replace(COLOURS.images, preprocessing=Preprocessing.square(4))
    for palette in (GREY, COLOURS, dataclasses.replace(COLOURS, images=scaled)):
        assert Palette.from_json(palette.to_json()) == palette
    assert Palette.from_json(GREY.to_json()) != COLOURS


@pytest.mark.parametrize(
    ("colours", "message"),
    [
        ([[0]], "expected 2 to 65,536 distinct colours"),
        ([[0], [0]], "expected 2 to 65,536 distinct colours"),
        ([[0], [256]], "values from 0 to 255 for each of 1 channels"),
        ([[0], [1, 2, 3]], "values from 0 to 255 for each of 1 channels"),
        (7, "palette: images or colours are missing"),
    ],
)
def test_a_palette_that_cannot_be_is_refused(colours, message):
    with pytest.raises(ValueError, match=message):
        Palette.from_json(GREY.to_json() | {"colours": colours})
