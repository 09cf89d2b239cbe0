import io
import tarfile

import numpy as np
import pytest
from PIL import Image

from data import DataError
from data import images as module
from data.images import Images, digits, held_out_part, read_cifar10
from data.pipelines.orders import generators, shuffled_order
from data.readers.image_files import read_images
from jaxnlp.images.processor import ImageProcessor

IMAGE = np.random.default_rng(0).integers(0, 256, (6, 6, 3), dtype=np.uint8)


def save(folder, name, image=IMAGE):
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(image).save(folder / name)


@pytest.fixture
def folder(tmp_path):
    """Three images of cats and two of dogs."""
    for name in ("cat/a.png", "cat/b.png", "cat/c.png", "dog/a.png", "dog/b.png"):
        save(tmp_path / "animals", name)
    (tmp_path / "animals" / "cat" / "notes.txt").write_text("not an image")
    return tmp_path / "animals"


def test_digits_are_whole_and_a_part_of_each_class_is_held_out():
    found = digits()
    assert (found.images.shape, found.images.dtype) == ((1797, 8, 8, 1), np.uint8)
    assert found.images.max() == 255
    train, held_out = held_out_part(found, 0.2)
    assert len(train.images) + len(held_out.images) == 1797
    np.testing.assert_allclose(np.bincount(held_out.labels) / np.bincount(found.labels), 0.2, atol=0.005)
    rows = {image.tobytes() for image in train.images}
    assert sum(image.tobytes() in rows for image in held_out.images) <= 1  # two digits are drawn alike


def test_another_seed_holds_out_other_images_and_as_many():
    found = digits()
    first, other = (held_out_part(found, 0.2, seed)[1] for seed in (0, 1))
    np.testing.assert_array_equal(np.bincount(first.labels), np.bincount(other.labels))
    assert 0.1 < np.mean(np.isin(other.names, first.names)) < 0.3  # a fifth by chance
    assert Images(split_seed=1).load(0).fingerprint != Images().load(0).fingerprint


def test_a_tilde_in_a_path_is_the_home_folder(folder, monkeypatch):
    monkeypatch.setenv("HOME", str(folder.parent))
    fields = {"source": "files", "batch_size": 1}
    assert (
        Images(path="~/animals", **fields).load(0).fingerprint == Images(path=str(folder), **fields).load(0).fingerprint
    )
    own = Images(path="~/animals", validation_path="~/animals", **fields).load(0)
    assert len(list(own.splits["validation"].examples)) == 5


def test_what_is_no_image_of_a_class_is_counted_and_images_of_both_parts_are(folder, tmp_path, caplog):
    save(folder, "loose.png")
    save(folder, "dog/puppies/c.png")
    (folder / ".DS_Store").write_text("")
    corpus = Images(source="files", path=str(folder), batch_size=1).load(0)
    assert "animals: files and folders that are ignored" in caplog.text
    assert "such as cat/notes.txt" in caplog.text
    assert (
        "images of validation that are also in training: 2" in corpus.description
    )  # all images of this test are equal


def test_a_class_that_validation_lacks_is_told(folder, tmp_path):
    save(tmp_path / "held_out", "cat/a.png")
    found = Images(source="files", path=str(folder), validation_path=str(tmp_path / "held_out"), batch_size=1).load(0)
    assert "validation has no image of 1 of the classes, such as dog" in found.description


def test_classes_of_equal_size_are_told_in_one_phrase(folder):
    config = Images(source="files", path=str(folder), batch_size=1)
    assert "2 classes; dog has the fewest images, 1, and cat the most, 2" in config.load(0).description
    (folder / "cat" / "c.png").unlink()
    assert "2 classes of 1 image each" in config.load(0).description


def flipped(images):
    return images[:, :, ::-1]


@pytest.mark.parametrize(
    ("option", "changed"),
    [({"flip": True}, flipped), ({"shift": 2}, None), ({"erase_rate": 1.0}, None), ({"mix": "mixup"}, None)],
    ids=["flip", "shift", "erase", "mixup"],
)
def test_each_option_changes_training_images_only(option, changed):
    plain, other = (Images(batch_size=64, **fields).load(3) for fields in ({}, option))
    before, after = (next(iter(corpus.train)) for corpus in (plain, other))
    np.testing.assert_array_equal(before["labels"], after["labels"])
    same = (before["images"] == after["images"]).all(axis=(1, 2, 3))
    assert not same.all()
    if changed is not None:
        np.testing.assert_array_equal(
            np.where(same[:, None, None, None], before["images"], changed(before["images"])), after["images"]
        )
        assert 0.2 < same.mean() < 0.8
    held_out = [next(iter(corpus.split("validation").batches))["images"] for corpus in (plain, other)]
    np.testing.assert_array_equal(*held_out)


def test_flips_and_shifts_draw_what_the_methods_of_generators_draw():
    images, _ = held_out_part(digits(), 0.1)

    def row(index, generator):
        image = images.images[index][:, ::-1] if generator.random() < 0.5 else images.images[index]
        top, left = generator.integers(0, 5, 2)
        return np.pad(image, ((2, 2), (2, 2), (0, 0)))[top : top + 8, left : left + 8]

    order = shuffled_order(len(images.images), 3)
    batches = iter(Images(batch_size=64, flip=True, shift=2).load(3).train)
    for number in range(3):
        indices = np.arange(64 * number, 64 * (number + 1))
        expected = [row(*drawn) for drawn in zip(order(indices), generators(3, indices), strict=True)]
        np.testing.assert_array_equal(next(batches)["images"], expected)


def test_batches_are_the_same_each_time_and_each_image_comes_once_an_epoch():
    data = Images(batch_size=64, shift=1, erase_rate=0.5, flip=True, mix="mixup")
    corpora = [data.load(3), data.load(3)]
    iterators = [iter(corpus.train) for corpus in corpora]
    first = [next(iterator) for iterator in iterators]
    assert {name: (x.shape, x.dtype) for name, x in first[0].items()} == {
        "images": ((64, 8, 8, 1), np.uint8),
        "labels": ((64,), np.int32),
        "other_labels": ((64,), np.int32),
        "share": ((64,), np.float32),
        "loss_mask": ((64,), bool),
    }
    for name in first[0]:
        np.testing.assert_array_equal(first[0][name], first[1][name])
    state = iterators[0].get_state()
    second = next(iterators[0])
    iterators[1].set_state(state)
    np.testing.assert_array_equal(next(iterators[1])["images"], second["images"])
    assert corpora[0].fingerprint == corpora[1].fingerprint != Images(validation_fraction=0.3).load(3).fingerprint

    plain = Images(batch_size=8, validation_fraction=0.9).load(0)
    count = len(digits().images) - len(plain.split("validation").examples)
    batches = iter(plain.train)
    seen = [image.tobytes() for _ in range(count // 8) for image in next(batches)["images"]]
    assert len(set(seen)) == len(seen)


def test_known_images_are_scaled_if_asked_and_those_of_a_prediction_are_too():
    plain, small = Images().load(0), Images(resize=4).load(0)
    assert next(iter(small.train))["images"].shape == (32, 4, 4, 1)
    image = plain.split("validation").examples[0].image
    np.testing.assert_array_equal(small.processor.array(image), small.split("validation").examples[0].image)


def test_an_evaluation_split_is_padded_and_in_order():
    corpus = Images(evaluation_batch_size=100).load(0)
    split = corpus.split("validation")
    rows = np.concatenate([batch["images"][batch["loss_mask"]] for batch in split.batches])
    np.testing.assert_array_equal(rows, [example.image for example in split.examples])
    labels = np.concatenate([batch["labels"][batch["loss_mask"]] for batch in split.batches])
    assert labels.tolist() == [example.label for example in split.examples]
    assert {len(batch["labels"]) for batch in split.batches} == {100}
    assert corpus.token_counts.sum() == 1797 - len(split.examples)
    assert "10 classes" in corpus.description


def test_a_folder_has_a_class_for_each_of_its_folders(folder):
    found = read_images(folder)
    assert found.classes == ("cat", "dog")
    assert found.labels.tolist() == [0, 0, 0, 1, 1]
    np.testing.assert_array_equal(found.images[0], IMAGE)
    corpus = Images(source="files", path=str(folder), batch_size=2, evaluation_batch_size=4).load(0)
    assert [example.label for example in corpus.split("validation").examples] == [0, 1]
    assert [example.name for example in corpus.split("validation").examples] in (
        [f"cat/{cat}.png", f"dog/{dog}.png"] for cat in "abc" for dog in "ab"
    )
    assert corpus.processor.classes == ("cat", "dog")
    assert corpus.processor == ImageProcessor.from_json(corpus.processor.to_json())
    again = Images(source="files", path=str(folder), validation_path=str(folder), batch_size=2).load(0)
    assert len(again.split("validation").examples) == 5
    split = Images(source="files", path=str(folder)).read_file(folder, corpus.processor)
    assert len(split.examples) == 5


def test_your_own_images_need_a_path():
    with pytest.raises(DataError, match=r"data.source files needs your images: give a folder .* --data.path"):
        Images(source="files").load(0)


def test_arrays_are_read_and_must_fit_the_model(tmp_path):
    labels = np.array([0, 1, 0, 1])
    np.savez(tmp_path / "a.npz", images=np.zeros((4, 6, 6), np.uint8), labels=labels)
    data = Images(source="files", path=str(tmp_path / "a.npz"), batch_size=2)
    processor = data.load(0).processor
    assert processor.shape == (6, 6, 1)
    digits_of = Images().load(0).processor
    found = data.load(0, digits_of).processor  # of weights whose head and positions do not fit
    assert (found.shape, found.classes, found.mean) == ((6, 6, 1), ("0", "1"), digits_of.mean)
    with pytest.raises(DataError, match=r"the model reads images with 3 channels, but these have 1"):
        Images().load(0, ImageProcessor(8, 3, (0.5,) * 3, (0.5,) * 3, ("a", "b")))
    with pytest.raises(DataError, match=r"images of shape \(6, 6, 1\), but the model reads \(8, 8, 1\)"):
        data.read_file(tmp_path / "a.npz", Images().load(0).processor)
    with pytest.raises(DataError, match=r"exceeds the number of training images, 2; give 2 or less"):
        Images(source="files", path=str(tmp_path / "a.npz")).load(0)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"path": "x"}, "data.source digits takes no path, got x; for your own images, set --data.source files"),
        ({"mix_alpha": 0.5}, "data.mix_alpha applies only to data.mix mixup and cutmix"),
        ({"skip_broken": True}, "data.skip_broken applies only to data.source files"),
        ({"source": "files", "path": "x", "resize": 0}, "data.resize must be at least 1, got 0"),
        ({"erase_rate": 1.5}, r"data.erase_rate must be in \[0, 1\], got 1.5"),
        ({"shift": -1}, "data.shift must be at least 0"),
        ({"validation_fraction": 1.0}, "data.validation_fraction must be in"),
        ({"mix": "mixup", "mix_alpha": 0.0}, "data.mix_alpha must be positive"),
    ],
)
def test_a_config_that_cannot_be_is_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        Images(**fields)


@pytest.fixture
def small_archive(tmp_path, monkeypatch):
    """CIFAR-10's archive with three images of each class, and what was decoded of it goes to a cache of its own."""
    monkeypatch.setenv("JAXNLP_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(module, "CIFAR10_IMAGES", 3)
    monkeypatch.setattr(module, "CIFAR10_HELD_OUT", 2)
    path = tmp_path / "train_jpeg.tar.xz"
    with tarfile.open(path, "w:xz") as archive:
        for label, name in enumerate(module.CIFAR10):
            for number in range(3):
                content = io.BytesIO()
                Image.new("RGB", (32, 32), (20 * label, 0, 80 * number)).save(content, "JPEG")
                member = tarfile.TarInfo(f"train/{name}/{number:04}.jpg")
                member.size = content.tell()
                content.seek(0)
                archive.addfile(member, content)
    return path


def test_cifar10_is_decoded_once_and_the_last_of_each_class_are_held_out(small_archive, tmp_path, monkeypatch):
    train, held_out = read_cifar10(small_archive)
    assert (train.images.shape, held_out.images.shape) == ((20, 32, 32, 3), (10, 32, 32, 3))
    assert held_out.labels.tolist() == list(range(10))
    assert held_out.names[3] == "cat/0002.jpg"
    np.testing.assert_allclose(held_out.images[:, 16, 16, 0], 20.0 * np.arange(10), atol=4)
    np.testing.assert_allclose(held_out.images[:, 16, 16, 2], 160, atol=4)
    monkeypatch.setattr(module, "_decode_cifar10", None)
    np.testing.assert_array_equal(read_cifar10(small_archive)[0].images, train.images)


def test_a_damaged_archive_is_named_and_nothing_is_kept(small_archive, tmp_path):
    small_archive.write_bytes(small_archive.read_bytes()[:-100])
    with pytest.raises(DataError, match=r"train_jpeg.tar.xz cannot be read"):
        read_cifar10(small_archive)
    assert not list((tmp_path / "cache").rglob("*.npy"))
    with pytest.raises(FileNotFoundError, match=r"the CIFAR-10 archive .* own images, set --data.source files"):
        read_cifar10(tmp_path / "none.tar.xz")


def test_images_that_are_also_in_validation_are_removed_from_training(folder, tmp_path):
    for name, shade in (("cat/d.png", 7), ("dog/d.png", 8)):
        save(folder, name, np.full_like(IMAGE, shade))
        save(tmp_path / "held_out", name, IMAGE)
    paths = {"path": str(folder), "validation_path": str(tmp_path / "held_out")}
    corpus = Images(source="files", batch_size=2, drop_duplicates=True, **paths).load(0)
    assert corpus.description.startswith("2 images of 6 x 6 pixels for training, 2 for validation;")
    assert corpus.description.endswith("\ntraining images that are also in validation, removed: 5")
    assert "also in training" not in corpus.description
    with pytest.raises(DataError, match="all training images of the class cat are also in validation"):
        Images(source="files", batch_size=2, drop_duplicates=True, **paths | {"validation_path": str(folder)}).load(0)
