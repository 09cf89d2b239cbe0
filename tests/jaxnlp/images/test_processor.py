import numpy as np
import pytest
from PIL import Image

from jaxnlp.images.processor import ImageProcessor, open_image, pixel_statistics

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
    with pytest.raises(ValueError, match="images: size, channels, mean, stddev or classes are missing"):
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
    wide = np.zeros((8, 20, 3), np.uint8)
    wide[:, 6:14] = (200, 100, 50)  # the middle square
    Image.fromarray(wide).save(tmp_path / "wide.png")
    with pytest.raises(ValueError, match=r"wide.png has 20 x 8 pixels, but the model reads 4 x 4; --resize crops"):
        PROCESSOR.read(tmp_path / "wide.png")
    found = PROCESSOR.read(tmp_path / "wide.png", resize=True)
    np.testing.assert_array_equal(found, np.broadcast_to(np.uint8([200, 100, 50]), (4, 4, 3)))


def test_files_that_are_no_images_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="does not exist"):
        open_image(tmp_path / "none.png", 3)
    (tmp_path / "text.png").write_text("text")
    with pytest.raises(ValueError, match=r"text.png is not an image that Pillow can read; replace or remove it"):
        open_image(tmp_path / "text.png", 3)
    Image.new("RGB", (30, 30)).save(tmp_path / "whole.jpg")
    (tmp_path / "half.jpg").write_bytes((tmp_path / "whole.jpg").read_bytes()[:-50])
    with pytest.raises(ValueError, match=r"half.jpg is damaged: .*; replace or remove it"):
        open_image(tmp_path / "half.jpg", 3)


def test_metadata_of_a_file_is_read_or_an_error(tmp_path):
    deep = Image.fromarray(np.arange(16, dtype=np.uint16).reshape(4, 4) * 4000)
    deep.save(tmp_path / "deep.png")
    with pytest.raises(ValueError, match=r"deep.png has more than 8 bits a channel \(Pillow's mode I;16\); convert it"):
        open_image(tmp_path / "deep.png", 1)
    clear = np.zeros((4, 4, 4), np.uint8)
    clear[:2] = (10, 20, 30, 255)
    Image.fromarray(clear).save(tmp_path / "clear.png")
    found = PROCESSOR.read(tmp_path / "clear.png")
    assert found[0, 0].tolist() == [10, 20, 30]
    assert found[3, 3].tolist() == [255, 255, 255]
    upright = np.zeros((4, 4, 3), np.uint8)
    upright[0] = 200
    exif = Image.Exif()
    exif[0x0112] = 3  # the camera was upside down
    Image.fromarray(upright[::-1]).save(tmp_path / "turned.png", exif=exif)
    np.testing.assert_array_equal(PROCESSOR.read(tmp_path / "turned.png"), upright)


def test_called_it_makes_a_batch_of_files_and_arrays(tmp_path):
    processor = ImageProcessor(2, 1, (0.5,), (0.5,), ("a", "b"))
    image = np.arange(4, dtype=np.uint8).reshape(2, 2)
    Image.fromarray(image).save(tmp_path / "image.png")
    found = processor([tmp_path / "image.png", image, image[..., None]])["images"]
    np.testing.assert_array_equal(found, np.stack([image[..., None]] * 3))
    assert processor(image)["images"].shape == (1, 2, 2, 1)
    with pytest.raises(ValueError, match=r"the model reads images \[2, 2, 1\] of uint8, got \[2, 2\] of float64"):
        processor(image / 2)
