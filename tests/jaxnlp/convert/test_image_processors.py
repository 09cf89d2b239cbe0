"""Image files become the pixels that Transformers' image processors of ViT, DeiT and CLIP make of them."""

import inspect
import itertools
import json

import numpy as np
import pytest
import transformers
from transformers.processing_utils import ImagesKwargs

from jaxnlp.convert.folders import PretrainedError
from jaxnlp.convert.image_processors import (
    DEFAULTS,
    PREPROCESSOR,
    PROCESSOR,
    SETTINGS,
    image_settings,
    read_image_settings,
)
from jaxnlp.images.preprocessing import Preprocessing
from jaxnlp.images.processor import ImageProcessor
from tests.image_folders import PROCESSORS, change, for_transformers, write_images

THEIRS = {"ViT": transformers.ViTImageProcessorPil, "DeiT": transformers.DeiTImageProcessorPil}
THEIRS |= {"CLIP": transformers.CLIPImageProcessorPil}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return write_images(tmp_path_factory.mktemp("images") / "all")


def written(folder, settings):
    folder.mkdir(exist_ok=True)
    (folder / PREPROCESSOR).write_text(json.dumps(settings))
    return folder


def assert_equal_pixels(folder, files, channels=3):
    """What the file of a folder makes of image files, here and in Transformers."""
    preprocessing, size, mean, stddev = read_image_settings(folder, "ViTImageProcessor", channels)
    kind = json.loads((folder / PREPROCESSOR).read_text()).get("image_processor_type", "ViTImageProcessor")
    theirs = THEIRS[kind.removesuffix("Pil").removesuffix("Fast").removesuffix("ImageProcessor")]
    expected = theirs.from_pretrained(folder)([for_transformers(file) for file in files], return_tensors="np")[
        "pixel_values"
    ]
    processor = ImageProcessor(size or expected.shape[-1], channels, mean, stddev, ("a", "b"), preprocessing)
    found = (processor(files)["images"] / 255.0 - mean) / stddev
    assert found.shape[1:] == (processor.size, processor.size, channels)
    np.testing.assert_allclose(found.transpose(0, 3, 1, 2), expected, atol=1e-5 * max(1.0, np.abs(expected).max()))


FILTERS = [
    {"size": size, "resample": resample, **crop}
    for resample in range(6)
    for size, crop in (
        ({"height": 12, "width": 12}, {}),
        ({"height": 9, "width": 14}, {"do_center_crop": True, "crop_size": {"height": 8, "width": 8}}),
        ({"shortest_edge": 10}, {"do_center_crop": True, "crop_size": {"height": 9, "width": 9}}),
    )
]


@pytest.mark.sweep(3)
@pytest.mark.parametrize("settings", FILTERS, ids=lambda value: f"{value['resample']} {' '.join(value['size'])}")
def test_images_are_scaled_with_each_filter_and_cropped_to_equal_pixels(settings, files, tmp_path):
    THEIRS["ViT"](**settings).save_pretrained(tmp_path)
    assert_equal_pixels(tmp_path, files)


SETTINGS_OF_PIXELS = [
    {"do_rescale": False},
    {"do_normalize": False},
    {"do_rescale": False, "do_normalize": False},
    {"rescale_factor": 0.5},
    {"image_mean": 0.3, "image_std": 2.0},
    {"do_convert_rgb": True},
    {"do_convert_rgb": False},
    {"do_center_crop": True, "crop_size": {"height": 40, "width": 40}},
    {"do_center_crop": True, "crop_size": 7, "size": 11},
    {"size": 10, "default_to_square": False, "do_center_crop": True, "crop_size": [8, 8]},
    {"size": [10, 10]},
    {"do_resize": False, "do_center_crop": True, "crop_size": {"height": 21, "width": 21}},
    {"do_pad": False, "pad_size": {"height": 4, "width": 4}},
]


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        *(("ViT", settings) for settings in SETTINGS_OF_PIXELS),
        *(
            pytest.param(kind, settings, marks=pytest.mark.thorough)
            for kind in ("DeiT", "CLIP")
            for settings in SETTINGS_OF_PIXELS
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_each_setting_changes_pixels_as_in_transformers(kind, settings, files, tmp_path):
    name = {"image_processor_type": f"{kind}ImageProcessor"}
    small = {"size": 12} | ({"crop_size": 10} if kind != "ViT" else {})
    assert_equal_pixels(written(tmp_path, name | small | settings), files)


@pytest.mark.parametrize("kind", THEIRS)
def test_settings_that_a_file_leaves_out_or_has_as_null_are_those_of_the_class(kind, files, tmp_path):
    name = {"image_processor_type": f"{kind}ImageProcessor"}
    assert_equal_pixels(written(tmp_path, name), files[:3])
    whole = read_image_settings(tmp_path, "", 3)
    held = DEFAULTS[f"{kind}ImageProcessor"]
    assert read_image_settings(written(tmp_path, name | dict.fromkeys(SETTINGS.names[2:])), "", 3) == whole
    assert read_image_settings(written(tmp_path, {}), f"{kind}ImageProcessor", 3) == whole
    old = {"feature_extractor_type": f"{kind}FeatureExtractor"}
    assert read_image_settings(written(tmp_path, old), "", 3) == whole
    theirs = THEIRS[kind]().to_dict()
    assert {name: theirs[name] for name in held if name in theirs and "image" not in name and "size" not in name} == {
        name: value for name, value in held.items() if name in theirs and "image" not in name and "size" not in name
    }


@pytest.mark.parametrize("kind", THEIRS)
def test_every_setting_that_transformers_writes_is_known(kind, tmp_path):
    PROCESSORS[kind].save_pretrained(tmp_path)
    given = json.loads((tmp_path / PREPROCESSOR).read_text())
    assert SETTINGS.problems(given) == []
    base = inspect.signature(transformers.image_processing_utils.BaseImageProcessor._standardize_kwargs).parameters
    names = {*given, *ImagesKwargs.__annotations__, *base} - {"self", "kwargs"}
    older = {
        "use_square_size",
        "feature_extractor_type",
        "processor_class",
        "_processor_class",
        "_valid_processor_keys",
    }
    assert names | older == set(SETTINGS.names)
    assert len(SETTINGS.names) == len(set(SETTINGS.names))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"image_processor_type": "SiglipImageProcessor"},
            "image_processor_type 'SiglipImageProcessor', expected ViTImage",
        ),
        ({"image_processor_type": []}, "image_processor_type \\[\\], expected ViTImage"),
        ({"do_pad": True}, "do_pad True, expected False or None"),
        ({"crop_pct": 0.9}, "unknown settings: crop_pct"),
        ({"do_resize": "yes"}, "do_resize 'yes', expected true or false"),
        ({"size": {"longest_edge": 8}}, "size {'longest_edge': 8}, expected height and width, or shortest_edge"),
        ({"size": 10**18}, "size 10{18}, expected height and width, or shortest_edge, at most 16,384 pixels"),
        ({"image_mean": [10**400]}, "expected a number for each of 3 channels"),
        ({"rescale_factor": 10**400}, "expected a positive number"),
        ({"size": {"height": 8, "width": 0}}, "expected height and width, or shortest_edge"),
        ({"size": {"shortest_edge": 8}}, "expected squares of one size"),
        ({"size": {"height": 8, "width": 9}}, "expected squares of one size"),
        ({"do_center_crop": True}, "crop_size None, expected height and width"),
        (
            {"do_center_crop": True, "crop_size": {"shortest_edge": 8}},
            "crop_size {'shortest_edge': 8}, expected height",
        ),
        ({"resample": "bicubic"}, "resample 'bicubic', expected the number of a filter of Pillow"),
        ({"resample": 99}, "a filter of Pillow"),
        ({"rescale_factor": -1}, "rescale_factor -1, expected a positive number"),
        ({"image_mean": [0.5, 0.5]}, r"image_mean \[0.5, 0.5\], expected a number for each of 3 channels"),
        ({"image_std": "0.5"}, "image_std '0.5', expected a number for each of 3 channels"),
    ],
    ids=str,
)
def test_settings_that_are_not_supported_are_refused_by_name(changes, message, tmp_path):
    PROCESSORS["ViT"].save_pretrained(tmp_path)
    change(tmp_path, PREPROCESSOR, **changes)
    with pytest.raises(PretrainedError, match=message) as caught:
        read_image_settings(tmp_path, "ViTImageProcessor", 3)
    assert f"{tmp_path / PREPROCESSOR}: not supported: " in str(caught.value)


@pytest.mark.parametrize("nested", [True, False])
def test_a_processor_of_images_and_texts_has_the_settings_of_images_first(nested, files, tmp_path):
    PROCESSORS["ViT"].save_pretrained(tmp_path)
    whole = {"processor_class": "CLIPProcessor"}
    whole |= {"image_processor": PROCESSORS["CLIP"].to_dict()} if nested else {}
    (tmp_path / PROCESSOR).write_text(json.dumps(whole))
    theirs = transformers.AutoImageProcessor.from_pretrained(tmp_path, backend="pil")
    expected = theirs([for_transformers(file) for file in files], return_tensors="np")["pixel_values"]
    preprocessing, size, mean, stddev = read_image_settings(tmp_path, "", 3)
    found = (ImageProcessor(size, 3, mean, stddev, (), preprocessing)(files)["images"] / 255.0 - mean) / stddev
    np.testing.assert_allclose(found.transpose(0, 3, 1, 2), expected, atol=1e-5)
    for settings, message in (
        ({"image_processor": 3}, "expected an object as image_processor, got 3"),
        ({"video_processor": {}}, "unknown settings: video_processor"),
        ({"image_processor": {"do_pad": True}}, "do_pad True, expected False"),
    ):
        (tmp_path / PROCESSOR).write_text(json.dumps(settings))
        with pytest.raises(PretrainedError, match=f"{PROCESSOR}: .*{message}"):
            read_image_settings(tmp_path, "", 3)


def test_grey_images_are_not_made_colourful(tmp_path):
    with pytest.raises(PretrainedError, match="do_convert_rgb True, expected False for grey images"):
        read_image_settings(written(tmp_path, {"do_convert_rgb": True}), "ViTImageProcessor", 1)


@pytest.mark.parametrize(
    "preprocessing",
    [
        Preprocessing.square(9),
        Preprocessing.square(9, "pillow_rgb"),
        Preprocessing((9, 9), resample=1, conversion="pillow"),
        Preprocessing((11, 13), (9, 9), conversion="pillow"),
        Preprocessing(crop=(9, 9), conversion="pillow"),
    ],
    ids=str,
)
def test_what_is_written_makes_the_same_pixels_in_transformers(preprocessing, files, tmp_path):
    processor = ImageProcessor(9, 3, (0.1, 0.2, 0.3), (0.5, 0.6, 0.7), ("a", "b"), preprocessing)
    settings = image_settings(processor)
    kind = settings["image_processor_type"].removesuffix("ImageProcessor")
    theirs = THEIRS[kind].from_pretrained(written(tmp_path, settings))
    opaque = [file for file in files if "alpha" not in file.name and "deep" not in file.name]
    read = opaque if preprocessing.conversion == "opaque" else files
    expected = theirs([for_transformers(file) for file in read], return_tensors="np")["pixel_values"]
    found = (processor(read)["images"] / 255.0 - processor.mean) / processor.stddev
    np.testing.assert_allclose(found.transpose(0, 3, 1, 2), expected, atol=1e-5)
    if preprocessing.conversion != "opaque":
        again = read_image_settings(tmp_path, "", 3)
        assert again == (preprocessing, 9, processor.mean, processor.stddev)


def test_images_that_are_not_scaled_must_have_the_size(files, tmp_path):
    processor = ImageProcessor(12, 3, (0.5,) * 3, (0.5,) * 3, ("a", "b"))
    settings = image_settings(processor)
    assert (settings["do_resize"], settings["do_center_crop"]) == (False, False)
    held = read_image_settings(written(tmp_path, settings), "", 3)
    assert (held.size, held.preprocessing.size, held.preprocessing.crop) == (None, (), ())
    square = next(file for file in files if file.stem == "square")
    assert_equal_pixels(tmp_path, [square])
    odd = next(file for file in files if file.stem == "odd")
    with pytest.raises(ValueError, match=r"odd.png has 17 x 31 pixels, but the model reads 12 x 12; --resize"):
        processor.read(odd)


def test_all_kinds_of_images_differ(files):
    images = ImageProcessor(12, 3, (0.5,) * 3, (0.5,) * 3, ("a", "b"), Preprocessing.square(12, "pillow"))(files)
    for one, other in itertools.combinations(images["images"], 2):
        assert (one != other).any()
