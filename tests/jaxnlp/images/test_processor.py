import dataclasses

import numpy as np
import pytest
from PIL import Image

from jaxnlp.images.preprocessing import Preprocessing
from jaxnlp.images.processor import ImageProcessor, pixel_statistics

PROCESSOR = ImageProcessor(4, 3, (0.1, 0.2, 0.3), (1.0, 0.5, 0.25), ("cat", "dog"))
GENERATOR = np.random.default_rng


def test_statistics_are_those_of_the_pixels():
    images = GENERATOR(1).integers(0, 256, (5, 4, 4, 3), dtype=np.uint8)
    mean, stddev = pixel_statistics(images)
    np.testing.assert_allclose(mean, (images / 255).mean(axis=(0, 1, 2)))
    np.testing.assert_allclose(stddev, (images / 255).std(axis=(0, 1, 2)))
    assert pixel_statistics(np.full((1, 2, 2, 1), 7, np.uint8))[1] == (1.0,)


def test_a_processor_is_equal_after_json_and_names_what_is_missing():
    assert ImageProcessor.from_json(PROCESSOR.to_json()) == PROCESSOR
    fields = PROCESSOR.to_json()
    del fields["mean"]
    with pytest.raises(ValueError, match="images: size, channels, mean, stddev, classes or preprocessing are missing"):
        ImageProcessor.from_json(fields)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"size": 0}, "size must be at least 1 and channels 1 or 3, got 0, 3"),
        ({"channels": 2}, "size must be at least 1 and channels 1 or 3, got 4, 2"),
        ({"mean": [0.5]}, "a mean and a positive stddev for each channel"),
        ({"stddev": [0.0, 1.0, 1.0]}, "a mean and a positive stddev for each channel"),
        ({"classes": ["cat"]}, "at least two classes with distinct names, got cat"),
        ({"classes": ["cat", "cat"]}, "at least two classes with distinct names, got cat, cat"),
    ],
)
def test_a_processor_that_cannot_be_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        ImageProcessor.from_json(PROCESSOR.to_json() | changes)


def test_a_file_is_read_as_it_was_written_and_another_size_is_cut_and_scaled(tmp_path):
    image = GENERATOR(0).integers(0, 256, (4, 4, 3), dtype=np.uint8)
    Image.fromarray(image).save(tmp_path / "a.png")
    np.testing.assert_array_equal(PROCESSOR.read(tmp_path / "a.png"), image)
    grey = ImageProcessor(4, 1, (0.5,), (0.5,), ("cat", "dog")).read(tmp_path / "a.png")
    assert grey.shape == (4, 4, 1)
    wide = np.zeros((8, 40, 3), np.uint8)
    wide[:, 12:28] = (200, 100, 50)  # the middle square, and what the filter sees beside it
    Image.fromarray(wide).save(tmp_path / "wide.png")
    with pytest.raises(ValueError, match=r"wide.png has 40 x 8 pixels, but the model reads 4 x 4; --resize, in Python"):
        PROCESSOR.read(tmp_path / "wide.png")
    found = PROCESSOR.read(tmp_path / "wide.png", resize=True)
    np.testing.assert_array_equal(found, np.broadcast_to(np.uint8([200, 100, 50]), (4, 4, 3)))


def test_a_processor_that_resizes_does_so_without_being_told(tmp_path):
    resizing = dataclasses.replace(PROCESSOR, preprocessing=Preprocessing.square(4))
    assert ImageProcessor.from_json(resizing.to_json()) == resizing
    image = GENERATOR(2).integers(0, 256, (6, 9, 3), dtype=np.uint8)
    Image.fromarray(image).save(tmp_path / "wide.png")
    right = PROCESSOR.read(tmp_path / "wide.png", resize=True)
    for given in (tmp_path / "wide.png", image, Image.fromarray(image)):
        np.testing.assert_array_equal(resizing.array(given), right)
        with pytest.raises(ValueError, match=r"has 9 x 6 pixels, .* trained with --data.resize 4 does"):
            PROCESSOR.array(given)


def test_called_it_makes_a_batch_of_files_and_arrays(tmp_path):
    processor = ImageProcessor(2, 1, (0.5,), (0.5,), ("a", "b"))
    image = np.arange(4, dtype=np.uint8).reshape(2, 2)
    Image.fromarray(image).save(tmp_path / "image.png")
    found = processor([tmp_path / "image.png", image, image[..., None], Image.fromarray(image), image / 255])["images"]
    np.testing.assert_array_equal(found, np.stack([image[..., None]] * 5))
    for one in (image, Image.fromarray(image)):
        assert processor(one)["images"].shape == (1, 2, 2, 1)
    with pytest.raises(ValueError, match="expected the name of an image file, got an empty one"):
        processor("")
    with pytest.raises(ValueError, match=r"fractional pixels must be in \[0, 1\], got 0.0 to 1.5"):
        processor(image / 2)
