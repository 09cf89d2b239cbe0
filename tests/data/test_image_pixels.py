import itertools

import numpy as np
import pytest
from PIL import Image

from data import DataError
from data.image_pixels import ImagePixels, palette_of
from data.images import Images
from jaxnlp.images.palette import START
from jaxnlp.images.preprocessing import Preprocessing

DRAW = np.random.default_rng(0)


@pytest.fixture(scope="module")
def corpus():
    return ImagePixels(batch_size=8, validation_fraction=0.9).load(3)


@pytest.fixture
def folder(tmp_path):
    """Four images of 6 x 9 pixels, in two folders."""
    for name in ("cat/a.png", "cat/b.png", "dog/a.png", "dog/b.png"):
        (tmp_path / "animals" / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(DRAW.integers(0, 256, (6, 9, 3), dtype=np.uint8)).save(tmp_path / "animals" / name)
    return tmp_path / "animals"


def test_few_colours_are_kept_and_a_batch_has_the_pixels_of_whole_images(corpus):
    assert corpus.processor.size == 17
    examples = corpus.split("validation").examples
    targets = np.concatenate(
        [batch["targets"][batch["loss_mask"][:, 0]] for batch in corpus.split("validation").batches]
    )
    np.testing.assert_array_equal(corpus.processor.decode(targets), examples)
    assert {image.tobytes() for image in examples} == {
        example.image.tobytes() for example in Images(validation_fraction=0.9).load(0).split("validation").examples
    }
    for batch in (next(iter(corpus.train)), *corpus.split("validation").batches):
        np.testing.assert_array_equal(batch["tokens"][:, 1:], batch["targets"][:, :-1])
        assert (batch["tokens"][:, 0] == START).all()
        assert {name: (x.shape[1], x.dtype) for name, x in batch.items()} == {
            "tokens": (64, np.int32),
            "targets": (64, np.int32),
            "loss_mask": (64, bool),
        }


def test_rows_that_fill_the_last_batch_are_not_scored(corpus):
    batches = corpus.split("validation").batches
    assert {batch["tokens"].shape for batch in batches} == {(64, 64)}
    assert sum(batch["loss_mask"].sum() for batch in batches) == 64 * len(corpus.split("validation").examples)


def test_each_training_image_comes_once_an_epoch_and_the_order_can_be_continued(corpus):
    count = 1797 - len(corpus.split("validation").examples)
    batches = iter(corpus.train)
    seen = [row.tobytes() for batch in itertools.islice(batches, count // 8) for row in batch["targets"]]
    assert len(set(seen)) == len(seen)
    state, other = batches.get_state(), iter(corpus.train)
    other.set_state(state)
    np.testing.assert_array_equal(next(other)["tokens"], next(batches)["tokens"])


def test_about_half_of_the_training_images_are_flipped():
    plain, other = (ImagePixels(flip=flip).load(3) for flip in (False, True))
    before, after = (corpus.processor.decode(next(iter(corpus.train))["targets"]) for corpus in (plain, other))
    same = (before == after).all(axis=(1, 2, 3))
    assert 0.2 < same.mean() < 0.8
    np.testing.assert_array_equal(np.where(same[:, None, None, None], before, before[:, :, ::-1]), after)


def test_k_means_chooses_among_many_colours():
    images = DRAW.normal(128, 40, (20, 8, 8, 3)).clip(0, 255).astype(np.uint8)
    palette = palette_of(images, 32)
    assert 28 <= palette.size <= 32
    assert palette_of(images, 32) == palette
    error = np.square(palette.decode(palette.encode(images)) - images.astype(float)).sum(axis=-1).mean()
    grid = np.array(list(itertools.product((32, 96, 160, 224), (64, 192), (32, 96, 160, 224)))).astype(float)
    to_grid = np.square(images.reshape(-1, 1, 3) - grid).sum(axis=-1).min(axis=1).mean()
    assert error < 0.7 * to_grid
    assert palette_of(images, 65_536).size == len(np.unique(images.reshape(-1, 3), axis=0))


def test_images_are_scaled_and_those_of_a_file_too(folder):
    data = ImagePixels(source="files", path=str(folder), batch_size=2, resize=4, validation_fraction=0.5)
    corpus = data.load(0)
    assert (data.max_length, corpus.processor.images.preprocessing) == (16, Preprocessing.square(4))
    assert next(iter(corpus.train))["tokens"].shape == (2, 16)
    split = data.read_file(folder, corpus.processor)
    assert len(split.examples) == 4
    assert [image.shape for image in split.examples] == [(4, 4, 3)] * 4
    assert ImagePixels(resize=4).load(0).processor.pixels == 16


def test_the_palette_of_an_earlier_run_is_kept_and_reads_only_its_size(folder):
    data = ImagePixels(source="files", path=str(folder), batch_size=2, resize=8)
    palette = data.load(0).processor
    again = ImagePixels(source="files", path=str(folder), batch_size=2, palette_size=2).load(0, palette)
    assert again.processor == palette
    with pytest.raises(DataError, match=r"digits: images of shape \(8, 8, 1\), but the model reads \(8, 8, 3\)"):
        ImagePixels().load(0, palette)
    with pytest.raises(DataError, match="this data set needs the class Palette, got ImageProcessor"):
        ImagePixels().load(0, palette.images)


def test_the_data_say_their_length_if_they_know_it():
    lengths = {"digits": 64, "cifar10": 1024, "files": None}
    assert {source: ImagePixels(source=source).max_length for source in lengths} == lengths
    assert [ImagePixels(source=source).needs for source in lengths] == ["", "cifar10", "your images"]


def test_images_that_are_too_few_or_of_one_colour_are_refused(tmp_path):
    np.savez(tmp_path / "a.npz", images=np.zeros((4, 6, 6), np.uint8), labels=np.array([0, 1, 0, 1]))
    with pytest.raises(DataError, match="all pixels of the training images are equal"):
        ImagePixels(source="files", path=str(tmp_path / "a.npz"), batch_size=2).load(0)
    with pytest.raises(
        DataError, match=r"--data.batch-size 1500 exceeds the number of training images, 1438; give 1438 or less"
    ):
        ImagePixels(batch_size=1_500).load(0)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"path": "x"}, "data.source digits takes no path, got x; for your own images, set --data.source files"),
        ({"validation_path": "x"}, "data.validation_path applies only to data.source files"),
        ({"skip_broken": True}, "data.skip_broken applies only to data.source files"),
        ({"source": "cifar10", "validation_fraction": 0.5}, "data.validation_fraction applies only to"),
        ({"palette_size": 1}, "data.palette_size must be at least 2, got 1"),
        ({"resize": 0}, "data.resize must be at least 1, got 0"),
    ],
)
def test_a_config_that_cannot_be_is_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        ImagePixels(**fields)


@pytest.mark.realdata
@pytest.mark.thorough
def test_cifar10_becomes_256_colours_and_stays_recognisable():
    corpus = ImagePixels(source="cifar10", resize=16).load(0)
    palette, examples = corpus.processor, np.stack(corpus.split("validation").examples)
    assert 250 <= palette.size <= 256
    assert examples.shape == (1_000, 16, 16, 3)
    error = np.abs(palette.decode(palette.encode(examples)) - examples.astype(float)).mean()
    assert error < 8.0
