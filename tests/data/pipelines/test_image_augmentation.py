import numpy as np
import pytest

from data.pipelines.image_augmentation import cutmix, erased, flip, mixup, shift

GENERATOR = np.random.default_rng
IMAGES = GENERATOR(0).integers(0, 256, (9, 6, 6, 3), dtype=np.uint8)


def test_chosen_images_are_flipped():
    chosen = np.arange(9) % 3 == 1
    expected = [image[:, ::-1] if one else image for image, one in zip(IMAGES, chosen, strict=True)]
    np.testing.assert_array_equal(flip(IMAGES, chosen), expected)


def test_each_image_is_shifted_to_its_corner():
    corners = np.array([(row, column) for row in range(3) for column in range(3)])
    padded = np.pad(IMAGES, ((0, 0), (1, 1), (1, 1), (0, 0)))
    expected = [image[i : i + 6, j : j + 6] for image, (i, j) in zip(padded, corners, strict=True)]
    np.testing.assert_array_equal(shift(IMAGES, 1, corners), expected)
    np.testing.assert_array_equal(shift(IMAGES, 0, 0 * corners), IMAGES)


def test_erased_rectangles_are_inside_and_at_most_about_a_third():
    assert erased((6, 6, 3), 0.0, GENERATOR(0)) is None
    for seed in range(20):
        image = IMAGES[0].copy()
        rows, columns, pixels = erased(image.shape, 1.0, GENERATOR(seed))
        assert image[rows, columns].shape == pixels.shape
        assert 0 < pixels.shape[0] < 6
        assert 0 < pixels.shape[1] < 6
        assert pixels.shape[0] * pixels.shape[1] <= 0.5 * 36


def test_mixup_is_the_rounded_mean_at_every_share():
    images = np.concatenate([np.zeros_like(IMAGES), np.full_like(IMAGES, 255), IMAGES] * 8)
    found = mixup({"images": images, "labels": np.arange(len(images))}, 0.1, GENERATOR(0))
    share = found["share"][:, None, None, None]
    assert (share > 1 - 1 / 512).any()
    assert (share < 0.9).any()
    expected = np.rint(share * images + (1 - share) * images[found["other_labels"]]).astype(np.uint8)
    np.testing.assert_array_equal(found["images"], expected)


@pytest.mark.parametrize("mix", [mixup, cutmix])
def test_mixed_images_have_the_shares_of_their_labels(mix):
    labels = np.arange(16, dtype=np.int32)
    images = np.broadcast_to(np.uint8(10 * labels)[:, None, None, None], (16, 8, 8, 3)).copy()
    found = mix({"images": images, "labels": labels}, 1.0, GENERATOR(0))
    share = found["share"][:, None]
    expected = 10 * (share[:, 0] * labels + (1 - share[:, 0]) * found["other_labels"])
    np.testing.assert_allclose(found["images"].mean(axis=(1, 2, 3)), expected, atol=0.51)
    assert sorted(found["other_labels"]) == labels.tolist()
    assert found["images"].dtype == np.uint8
    assert (share >= 0.4).all()
    np.testing.assert_array_equal(images[:, 0, 0, 0], 10 * labels)  # the batch is not written to
