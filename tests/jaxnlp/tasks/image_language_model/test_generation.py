import base64

import jax
import numpy as np
import pytest
from PIL import Image

from jaxnlp.images.palette import START
from jaxnlp.tasks.image_language_model.generation import NOT_GIVEN, Generate, generate, sheet
from tests.jaxnlp.tasks.image_language_model.images import IMAGES, PALETTE, opened


def test_the_given_rows_are_kept_and_the_others_are_the_most_probable_ones(trained):
    found = trained.generate(IMAGES[0], temperature=0.0)
    assert (found.shape, found.dtype) == ((1, 4, 4, 1), np.uint8)
    np.testing.assert_array_equal(found[0, :2], IMAGES[0, :2])
    ids = PALETTE.encode(IMAGES[:1])[0, :8].tolist()
    apply = jax.jit(trained.model.apply)
    for _ in range(8):  # without a cache
        tokens = np.int32([[START, *ids] + [0] * (15 - len(ids))])
        ids.append(int(np.argmax(apply({"params": trained.params}, tokens)[0, len(ids)])))
    np.testing.assert_array_equal(found, PALETTE.decode(np.array([ids])))


@pytest.mark.thorough
def test_completions_differ_and_depend_only_on_the_seed(trained):
    first, again, other = (trained.generate(IMAGES[1], num_samples=6, seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()
    assert len({image.tobytes() for image in first}) > 1
    assert set(first.ravel()) <= {0, 80, 160, 255}


@pytest.mark.thorough
def test_a_list_of_images_has_completions_of_each_and_no_image_has_new_ones(trained):
    assert trained.generate([IMAGES[0], Image.fromarray(IMAGES[1, ..., 0])], num_samples=3).shape == (2, 3, 4, 4, 1)
    assert trained.generate(num_samples=3).shape == (3, 4, 4, 1)
    assert trained.generate([], num_samples=3).shape == (0, 3, 4, 4, 1)
    given = trained.generate(IMAGES[0], given=0.8)
    np.testing.assert_array_equal(given[0, :3], IMAGES[0, :3])  # whole rows


@pytest.mark.parametrize(
    ("prompts", "options", "message"),
    [
        (IMAGES[0], {"given": 1.0}, r"given must be in \[0, 1\) and num_samples at least 1, got 1.0 and 1"),
        (IMAGES[0], {"num_samples": 0}, "num_samples at least 1, got 0.5 and 0"),
        (IMAGES[0], {"temperature": -1.0}, "temperature must be 0, or finite"),
        (np.zeros((5, 5), np.uint8), {}, "the image has 5 x 5 pixels, but the model reads 4 x 4; --resize"),
        (7, {}, "generate: expected one image, or a list of them, got int"),
    ],
)
def test_arguments_that_cannot_be_are_refused(trained, prompts, options, message):
    with pytest.raises(ValueError, match=message):
        generate(trained, prompts, **options)


def test_a_picture_has_the_given_part_the_completions_and_the_image():
    found = np.stack([IMAGES, 255 - IMAGES], axis=1)
    pixels = opened(sheet(IMAGES, found, 2))
    assert pixels.shape == (16 * (5 * 5 - 1), 16 * (4 * 5 - 1))
    small = pixels[8::16, 8::16]
    row = [small[5:9, 5 * column : 5 * column + 4] for column in range(4)]
    np.testing.assert_array_equal(row[0][:2], IMAGES[1, :2, :, 0])
    assert (row[0][2:] == NOT_GIVEN).all()
    for part, image in zip(row[1:], (IMAGES[1], 255 - IMAGES[1], IMAGES[1]), strict=True):
        np.testing.assert_array_equal(part, image[..., 0])


def test_the_command_writes_a_picture_and_reads_files(trained, tmp_path, capsys):
    files = [str(tmp_path / f"{name}.png") for name in "ab"]
    for file, image in zip(files, IMAGES, strict=False):
        Image.fromarray(image[..., 0]).save(file)
    Generate(tuple(files), num_samples=3, out=tmp_path / "out.png")(trained)
    assert capsys.readouterr().out == f"{tmp_path / 'out.png'}\n"
    assert opened(base64.b64encode((tmp_path / "out.png").read_bytes())).shape == (16 * 9, 16 * 24)
    Generate(num_samples=3, out=tmp_path / "new.png")(trained)
    assert opened(base64.b64encode((tmp_path / "new.png").read_bytes())).shape == (16 * 9, 16 * 9)
    with pytest.raises(ValueError, match=r"would have the format of .png files"):
        Generate(out=tmp_path / "out.jpg")(trained)
    with pytest.raises(FileNotFoundError, match=r"the image none.png"):
        Generate(("none.png",))(trained)
