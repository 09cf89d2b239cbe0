import os

import numpy as np
import pytest
from PIL import Image

from data import DataError
from data.images import Images
from data.readers.image_files import read_images
from jaxnlp.images.preprocessing import Preprocessing

IMAGE = np.random.default_rng(0).integers(0, 256, (6, 6, 3), dtype=np.uint8)
LABELS = np.array([0, 1, 0, 1])


def save(folder, name, image=IMAGE):
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(image).save(folder / name)


@pytest.fixture
def folder(tmp_path):
    """Two images of cats and two of dogs."""
    for name in ("cat/a.png", "cat/b.png", "dog/a.png", "dog/b.png"):
        save(tmp_path / "animals", name)
    return tmp_path / "animals"


def test_images_of_any_size_are_scaled_and_cropped_where_a_size_is_given(folder):
    save(folder, "cat/wide.png", np.repeat(IMAGE, 2, axis=1)[:, 3:9])
    save(folder, "dog/deep.png", np.full((30, 20), 257 * 100, np.uint16))
    found = read_images(folder, preprocessing=Preprocessing.square(3))
    assert found.images.shape == (6, 3, 3, 3)
    assert found.names[2:] == ("cat/wide.png", "dog/a.png", "dog/b.png", "dog/deep.png")
    np.testing.assert_array_equal(found.images[-1], np.full((3, 3, 3), 100))
    np.testing.assert_array_equal(found.images[0], np.asarray(Image.fromarray(IMAGE).resize((3, 3))))
    assert read_images(folder, preprocessing=Preprocessing.square(3), channels=1).images.shape == (6, 3, 3, 1)


def test_a_run_that_scales_its_images_scales_those_of_files_and_of_prediction(folder, tmp_path):
    save(folder, "dog/wide.png", np.repeat(IMAGE, 2, axis=1))
    data = Images(source="files", path=str(folder), batch_size=2, resize=4)
    corpus = data.load(0)
    processor = corpus.processor
    assert (processor.shape, processor.preprocessing) == ((4, 4, 3), Preprocessing.square(4))
    held_out = {example.name: example.image for example in corpus.split("validation").examples}
    held_out |= {example.name: example.image for example in data.read_file(folder, processor).examples}
    for name, image in held_out.items():
        np.testing.assert_array_equal(processor.array(folder / name), image)
    held_out = Images(source="files", path=str(folder), validation_path=str(folder), batch_size=2, resize=4).load(0)
    assert len(held_out.split("validation").examples) == 5
    assert data.load(0, processor).processor == processor
    (folder / "dog" / "wide.png").unlink()
    plain = Images(source="files", path=str(folder), batch_size=2)
    assert plain.load(0).processor.preprocessing == Preprocessing()
    save(tmp_path / "others", "cat/a.png", IMAGE[:4, :4])
    with pytest.raises(
        DataError, match=r"images of shape \(4, 4, 3\), but .* \(6, 6, 3\); .* train with --data.resize 6"
    ):
        plain.read_file(tmp_path / "others", plain.load(0).processor)
    save(tmp_path / "others", "dog/a.png", IMAGE[:4, :4])
    with pytest.raises(
        DataError, match=r"others: images of shape \(4, 4, 3\), but .*; --data.resize 6 scales and crops"
    ):
        Images(source="files", path=str(folder), validation_path=str(tmp_path / "others"), batch_size=2).load(0)


def test_files_are_read_with_the_channels_of_the_model(folder):
    colours = Images(source="files", path=str(folder), batch_size=1).load(0).processor
    grey = type(colours)(6, 1, (0.5,), (0.5,), colours.classes)
    split = Images(source="files", path=str(folder)).read_file(folder, grey)
    assert split.batches[0]["images"].shape[1:] == (6, 6, 1)
    assert Images(source="files", path=str(folder), batch_size=1).load(0, grey).processor == grey


def test_broken_files_are_counted_and_skipped_or_the_first_is_named_with_the_option(folder, caplog):
    (folder / "cat" / "aa.jpg").write_text("no image")
    (folder / "dog" / "c.png").write_bytes((folder / "dog" / "a.png").read_bytes()[:60])
    (folder / "dog" / "gone.png").symlink_to(folder / "nowhere.png")
    with pytest.raises(
        DataError,
        match=r"aa.jpg is not an image .*, or skip such files with --data.skip-broken; 3 of 7 files cannot be read",
    ):
        read_images(folder)
    found = read_images(folder, skip_broken=True)
    assert found.names == ("cat/a.png", "cat/b.png", "dog/a.png", "dog/b.png")
    assert found.labels.tolist() == [0, 0, 1, 1]
    np.testing.assert_array_equal(found.images, [IMAGE] * 4)
    assert "skipped, because they cannot be read: 3 of 7; the first: " in caplog.text
    assert "aa.jpg is not an image" in caplog.text
    data = Images(source="files", path=str(folder), batch_size=2, skip_broken=True)
    processor = data.load(0).processor
    # An evaluation has no such option.
    assert len(Images(source="files", path=str(folder)).read_file(folder, processor).examples) == 4
    for name in ("a", "b"):
        (folder / "dog" / f"{name}.png").write_bytes(b"")
    with pytest.raises(DataError, match=r"animals/dog: no image files that can be read"):
        data.load(0)


def test_folders_that_cannot_be_are_named_with_the_file(folder, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nowhere does not exist; expected a folder"):
        read_images(tmp_path / "nowhere")
    with pytest.raises(DataError, match="expected at least two folders, one for each class, got 1"):
        read_images(tmp_path)
    with pytest.raises(DataError, match=r"animals/dog: unknown class; the model has bird, cat"):
        read_images(folder, ("bird", "cat"))
    save(folder, "cat/wide.png", IMAGE[:4])
    with pytest.raises(
        DataError,
        match=r"wide.png: 6 x 4 pixels; all images must be square and of one size, and .*a.png .*; crop and scale .* "
        "--data.resize N",
    ):
        read_images(folder)
    (folder / "cat" / "wide.png").unlink()
    (folder / "empty").mkdir()
    with pytest.raises(
        DataError, match=r"animals/empty: no image files .*\(.png, .*\); add some, or remove the folder"
    ):
        read_images(folder)
    (folder / "empty" / "cat").mkdir()
    with pytest.raises(DataError, match=r"; if its folders are the classes, give --data.path .*animals/empty$"):
        read_images(folder)
    (folder / "empty" / "cat").rmdir()
    (folder / "empty").rmdir()
    (folder / "dog" / "b.png").unlink()
    with pytest.raises(DataError, match="the class dog has fewer than two images; it needs two"):
        Images(source="files", path=str(folder), batch_size=1).load(0)


def test_names_that_are_not_utf8_can_be_written(folder):
    os.rename(folder / "dog", os.fsencode(folder) + b"/d\xf6g")
    found = read_images(folder)
    assert found.classes == ("cat", "d\\xf6g")
    assert found.names[2] == "d\\xf6g/a.png"


def test_hidden_files_are_no_images(folder, caplog):
    (folder / "cat" / "._a.png").write_bytes(b"the second part of a file of macOS")
    assert read_images(folder).names == ("cat/a.png", "cat/b.png", "dog/a.png", "dog/b.png")
    assert not caplog.text


@pytest.mark.parametrize(
    ("images", "labels", "message"),
    [
        (
            np.zeros((4, 6, 5), np.uint8),
            np.arange(4),
            r"images must have the shape \[N, I, I\] .*train with --data.resize",
        ),
        (np.zeros((4, 3, 6, 6), np.uint8), np.arange(4), r"1 to 4 channels, got uint8 \(4, 3, 6, 6\)$"),
        (np.zeros((4, 6, 6), np.int64), np.arange(4), "image 0: pixels must be uint8, uint16, bool or .*, got int64"),
        (np.full((4, 6, 6), 2.0), np.arange(4), r"image 0: fractional pixels must be in \[0, 1\], got 2.0 to 2.0"),
        (np.zeros((4, 6, 6), np.uint8), np.arange(3), "labels must be whole numbers from 0, one for each of 4 images"),
        (np.zeros((4, 6, 6), np.uint8), np.array([0, 1, 3, 3]), "no image has the label 2; each class needs images"),
        (np.zeros((2, 6, 6), np.uint8), np.zeros(2, int), "no image has the label 1"),
        (np.zeros((2, 6, 6), np.uint8), np.array([-1, 0]), r"whole numbers from 0, .* got int64 \(2,\), the lowest -1"),
    ],
)
def test_arrays_that_cannot_be_are_refused(tmp_path, images, labels, message):
    np.savez(tmp_path / "a.npz", images=images, labels=labels)
    with pytest.raises(DataError, match=message):
        read_images(tmp_path / "a.npz")


@pytest.mark.parametrize(
    ("change", "channels"),
    [
        (lambda images: images, 3),
        (lambda images: 257 * images.astype(np.uint16), 3),
        (lambda images: images / np.float32(255), 3),
        (lambda images: np.concatenate([images, np.full_like(images[..., :1], 255)], axis=-1), 3),
        (lambda images: images[..., 0], 1),
        (lambda images: images[..., :1], 1),
        (lambda images: images[..., 0] > 127, 1),
    ],
)
def test_arrays_of_any_depth_and_channels_are_read(tmp_path, change, channels):
    changed = change(np.stack([IMAGE] * 4))
    np.savez(tmp_path / "a.npz", images=changed, labels=LABELS)
    right = np.where(IMAGE > 127, 255, 0) if changed.dtype == bool else IMAGE
    np.testing.assert_array_equal(read_images(tmp_path / "a.npz").images, [right[..., :channels]] * 4)
    assert read_images(tmp_path / "a.npz", channels=3, preprocessing=Preprocessing.square(2)).images.shape == (
        4,
        2,
        2,
        3,
    )


def test_pixels_of_8_bits_in_arrays_of_16_bits_are_warned_of(tmp_path, caplog):
    for highest, warned in ((255, True), (256, False)):
        caplog.clear()
        images = np.full((4, 6, 6), highest, np.uint16)
        np.savez(tmp_path / "a.npz", images=images, labels=LABELS)
        read_images(tmp_path / "a.npz")
        assert ["at most 255: they are read as almost black" in one for one in caplog.messages] == [True] * warned


def test_labels_of_arrays_are_those_of_the_model(tmp_path):
    np.savez(tmp_path / "a.npz", images=np.zeros((4, 6, 6), np.uint8), labels=LABELS)
    with pytest.raises(DataError, match=r"the label 1 has no class; the model has 0$"):
        read_images(tmp_path / "a.npz", ("0",))


def test_labels_of_arrays_are_classes_with_numbers_as_names_in_any_order(tmp_path, caplog):
    np.savez(tmp_path / "a.npz", images=np.zeros((3, 6, 6), np.uint8), labels=[2, 10, 3])
    classes = tuple(sorted(map(str, range(1, 13))))
    read = read_images(tmp_path / "a.npz", classes)
    assert [read.classes[label] for label in read.labels] == ["2", "10", "3"]
    assert not caplog.messages
    np.savez(tmp_path / "a.npz", images=np.zeros((3, 6, 6), np.uint8), labels=[0, 1, 0])
    with pytest.raises(DataError, match="the label 0 has no class; the model has 1, 10, 11"):
        read_images(tmp_path / "a.npz", classes)
    assert read_images(tmp_path / "a.npz", ("cat", "7")).labels.tolist() == [0, 1, 0]
    assert caplog.messages == [
        f"{tmp_path / 'a.npz'}: the labels are read as places in the list of classes: 0 = cat, 1 = 7"
    ]
