import numpy as np
import pytest

from data.pipelines.image_augmentation import cutmix, erase, flip, mixup, shift

GENERATOR = np.random.default_rng
IMAGE = GENERATOR(0).integers(0, 256, (6, 6, 3), dtype=np.uint8)


def test_flips_shifts_and_erased_rectangles_keep_the_shape():
    flipped = [flip(IMAGE, GENERATOR(seed)) for seed in range(20)]
    assert {x.tobytes() for x in flipped} == {IMAGE.tobytes(), IMAGE[:, ::-1].tobytes()}
    shifted = {shift(IMAGE, 1, GENERATOR(seed)).tobytes() for seed in range(100)}
    padded = np.pad(IMAGE, ((1, 1), (1, 1), (0, 0)))
    assert shifted == {padded[i : i + 6, j : j + 6].tobytes() for i in range(3) for j in range(3)}
    assert erase(IMAGE, 0.0, GENERATOR(0)) is IMAGE
    for seed in range(20):
        changed = (erase(IMAGE, 1.0, GENERATOR(seed)) != IMAGE).any(axis=2)
        rows, columns = np.flatnonzero(changed.any(axis=1)), np.flatnonzero(changed.any(axis=0))
        assert 0 < len(rows) < 6
        assert 0 < len(columns) < 6
        assert (rows[-1] - rows[0] + 1) * (columns[-1] - columns[0] + 1) <= 0.5 * 36


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
