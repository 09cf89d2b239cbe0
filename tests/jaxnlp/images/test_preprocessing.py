import numpy as np
import pytest
from PIL import Image

from jaxnlp.images.preprocessing import BICUBIC, Preprocessing

GENERATOR = np.random.default_rng(0)


def image_of(rows, columns):
    return Image.fromarray(GENERATOR.integers(0, 256, (rows, columns, 3), dtype=np.uint8))


@pytest.mark.parametrize("turned", [False, True])
def test_the_shorter_side_is_scaled_and_the_middle_cropped(turned):
    image = image_of(40, 80)
    right = np.asarray(image.resize((16, 8)).crop((4, 0, 12, 8)))
    if turned:
        image, right = image.transpose(Image.Transpose.TRANSPOSE), right.swapaxes(0, 1)
    found = np.asarray(Preprocessing.square(8)(image)).astype(int)
    np.testing.assert_allclose(found, right, atol=turned)  # Pillow rounds after it has scaled the rows


def test_an_image_of_the_size_is_unchanged_and_a_thin_or_small_one_is_enlarged():
    image = image_of(4, 4)
    for preprocessing in (Preprocessing(), Preprocessing.square(4), Preprocessing((4, 4))):
        assert not preprocessing.changes(4, 4)
        assert preprocessing(image).tobytes() == image.tobytes()
    assert Preprocessing.square(4)(Image.new("L", (1, 1000))).size == (4, 4)


def test_a_smaller_image_has_black_pixels_around_it():
    found = np.asarray(Preprocessing(crop=(5, 4))(image_of(2, 6)))
    assert found.shape == (5, 4, 3)
    assert found[2:4].any()
    assert not found[[0, 1, 4]].any()


def test_the_size_of_the_result_is_told_before():
    for preprocessing in (Preprocessing((7,)), Preprocessing((6, 9)), Preprocessing((7,), (3, 3)), Preprocessing()):
        for rows, columns in ((5, 13), (13, 5), (7, 7)):
            found = preprocessing(image_of(rows, columns))
            assert (found.height, found.width) == preprocessing.result_size(rows, columns)
            assert preprocessing.changes(rows, columns) == (found.size != (columns, rows))


def test_another_size_keeps_the_filter_and_the_share_that_is_cropped():
    deit = Preprocessing((256, 256), (224, 224), 3, conversion="pillow")
    assert deit.for_size(224, 224) == deit
    assert deit.for_size(448, 224) == Preprocessing((512, 512), (448, 448), 3, conversion="pillow")
    assert Preprocessing((224, 224), resample=2).for_size(64, 224) == Preprocessing((64, 64), resample=2)
    assert Preprocessing(conversion="pillow").for_size(8, 8) == Preprocessing.square(8, "pillow")


def test_it_is_equal_after_json_and_names_what_is_missing():
    found = Preprocessing((256,), (224, 224), 2, conversion="pillow")
    assert Preprocessing.from_json(found.to_json()) == found
    with pytest.raises(ValueError, match="images: size, crop, resample or conversion are missing"):
        Preprocessing.from_json({"size": [3]})


@pytest.mark.parametrize(
    "fields", [{"size": (0,)}, {"size": (1, 2, 3)}, {"crop": (3,)}, {"resample": 99}, {"conversion": "x"}]
)
def test_a_preprocessing_that_cannot_be_is_refused(fields):
    assert Preprocessing().resample == BICUBIC == 3
    with pytest.raises(ValueError, match="expected sizes and crops of at least 1 pixel, a filter of Pillow and"):
        Preprocessing(**fields)
