"""ViT and DeiT of Transformers as classifiers of images, and classifiers of images as ViT and DeiT."""

import dataclasses
import json

import jax
import numpy as np
import pytest
import torch
import transformers
from PIL import Image

import jaxnlp
from jaxnlp.__main__ import main
from jaxnlp.convert.tensors import WeightsError
from jaxnlp.images.preprocessing import Preprocessing
from jaxnlp.images.processor import ImageProcessor
from jaxnlp.models.vit import ViTConfig, resized_positions
from jaxnlp.nn.compute import EXACT
from jaxnlp.tasks import Trained
from jaxnlp.tasks.classification import Classification
from jaxnlp.tasks.classification.export_command import ExportClassifier
from tests.image_folders import CLASSES, for_transformers, write_folder, write_images
from tests.random_parameters import random_parameters

TEACHER = "DeiTForImageClassificationWithTeacher"


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """By the name of its class: a folder, its model and its image processor in Transformers, and ours."""
    made = {}
    for kind in ("ViTForImageClassification", TEACHER, "ViTModel"):
        folder = tmp_path_factory.mktemp("tiny") / kind
        made[kind] = folder, *write_folder(folder, kind), jaxnlp.load_pretrained(folder)
    return made


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return write_images(tmp_path_factory.mktemp("images") / "all")


def probabilities(model, processor, files):
    with torch.no_grad():
        return (
            model(**processor([for_transformers(file) for file in files], return_tensors="pt"))
            .logits.softmax(-1)
            .numpy()
        )


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["ViTForImageClassification", TEACHER])
def test_predictions_for_files_are_those_of_transformers(kind, tiny, files):
    _, model, processor, run = tiny[kind]
    expected = probabilities(model, processor, files)
    found = run.predict(files)
    shares = [[one.probabilities[name] for name in CLASSES] for one in found]
    np.testing.assert_allclose(shares, expected, atol=1e-5)
    assert [one.label for one in found] == [CLASSES[label] for label in expected.argmax(axis=1)]
    assert run.predict(Image.open(files[0])).label == found[0].label


def test_the_pipeline_of_transformers_gives_the_same_scores(tiny, files):
    folder, _, _, run = tiny["ViTForImageClassification"]
    pipeline = transformers.pipeline(
        "image-classification", str(folder), image_processor=tiny[run.name.split("/")[-1]][2]
    )
    for file, one in zip(files, run.predict(files), strict=True):
        scores = {found["label"]: found["score"] for found in pipeline(for_transformers(file))}
        np.testing.assert_allclose([one.probabilities[name] for name in scores], [*scores.values()], atol=1e-5)


@pytest.mark.thorough
def test_the_rollout_reads_the_rows_of_both_tokens_without_their_columns(tiny, files):
    folder, _, processor, run = tiny[TEACHER]
    model = transformers.DeiTForImageClassificationWithTeacher.from_pretrained(folder, attn_implementation="eager")
    batch = processor([for_transformers(file) for file in files], return_tensors="pt")
    with torch.no_grad():
        attentions = model.eval()(**batch, output_attentions=True).attentions
    rolled = np.eye(11)[None]
    for weights in attentions:
        rolled = (weights.mean(dim=1).numpy() + np.eye(11)[None]) / 2 @ rolled
    expected = rolled[:, :2, 2:].mean(axis=1)
    images = run.processor(files)["images"]
    shares = np.asarray(run.model.attention_rollout(run.params, images)).reshape(len(files), -1)
    np.testing.assert_allclose(shares, expected / expected.sum(axis=1, keepdims=True), atol=1e-5)


def test_the_verbs_work_on_the_folder(tiny, files, tmp_path, capsys):
    folder, _, _, run = tiny[TEACHER]
    assert main(["predict", str(folder), *map(str, files), "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["class"] for row in rows] == [one.label for one in run.predict(files)]
    assert main(["attention", str(folder), str(files[0]), "--out", str(tmp_path / "page.html")]) == 0
    assert main(["export", str(folder), str(tmp_path / "out")]) == 0
    assert f"transformers.{TEACHER}.from_pretrained reads it" in capsys.readouterr().out
    assert jaxnlp.load_pretrained(tmp_path / "out").predict(files) == run.predict(files)
    assert main(["embed", str(folder), "a text"]) == 2
    assert "the image a text does not exist" in capsys.readouterr().err


def test_weights_without_a_head_attend_and_say_why_they_do_not_predict(tiny, files, tmp_path, capsys):
    folder, _, _, run = tiny["ViTModel"]
    with pytest.raises(ValueError, match=r"attend reads texts, but .* reads images; draw .*: jaxnlp attention"):
        run.attend("a text")
    assert main(["attention", str(folder), str(files[0]), "--out", str(tmp_path / "page.html")]) == 0
    assert files[0].name in (tmp_path / "page.html").read_text()
    with pytest.raises(
        ValueError, match="these weights have no head that predicts classes; train one with --init-from"
    ):
        run.predict(files)


def write_classes(folder, size=14, names=("bottom", "top")):
    """Images of two classes that a few steps learn: which half is bright."""
    generator = np.random.default_rng(0)
    for label, name in enumerate(names):
        (folder / name).mkdir(parents=True)
        for index in range(12):
            image = generator.integers(0, 100, (size, size + 3, 3), dtype=np.uint8)
            image[size // 2 :] += np.uint8(150 * (label == 0))
            image[: size // 2] += np.uint8(150 * (label == 1))
            Image.fromarray(image).save(folder / name / f"{index}.png")
    return folder


def train(recipe, source, images, workdir, *options):
    arguments = ["train", recipe, "--init-from", str(source), "--data.source", "files", "--data.path", str(images)]
    arguments += ["--data.batch-size", "8", "--workdir", str(workdir), *options]
    with jax.numpy_dtype_promotion("standard"):  # as users have it
        return main(arguments)


@pytest.mark.thorough
def test_weights_are_trained_further_on_other_classes_and_exported_with_the_predictions_of_the_run(
    tiny, files, tmp_path, capsys, caplog
):
    folder, _, _, before = tiny[TEACHER]
    images = write_classes(tmp_path / "images")
    steps = ["--total-steps", "24", "--evaluate-every-steps", "12", "--checkpoint-every-steps", "24"]
    rate = ["--optimizer.learning-rate", "3e-3", "--optimizer.schedule.warmup", "0", "--log-every-steps", "1"]
    assert train("vit_finetune", folder, images, tmp_path / "run", *steps, *rate) == 0
    assert "image encoder from" in capsys.readouterr().out
    assert "is not used: its classes differ" in caplog.text
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    losses = [row["loss"] for row in rows if row["split"] == "train"]
    assert np.mean(losses[-3:]) < 0.6 * np.mean(losses[:3])
    run = jaxnlp.load_run(tmp_path / "run")
    assert run.processor == dataclasses.replace(before.processor, classes=("bottom", "top"))
    assert run.model.config.distillation == "head"
    assert main(["evaluate", str(tmp_path / "run")]) == 0
    assert "accuracy" in capsys.readouterr().out
    assert main(["export", str(tmp_path / "run"), str(tmp_path / "out")]) == 0
    model = transformers.DeiTForImageClassificationWithTeacher.from_pretrained(tmp_path / "out").eval()
    assert model.config.id2label == {0: "bottom", 1: "top"}
    processor = transformers.AutoImageProcessor.from_pretrained(tmp_path / "out", backend="pil")
    exact = dataclasses.replace(run, model=dataclasses.replace(run.model.config, compute=EXACT).build(run.processor))
    shares = [[one.probabilities[name] for name in run.processor.classes] for one in exact.predict(files)]
    np.testing.assert_allclose(shares, probabilities(model, processor, files), atol=1e-5)


@pytest.mark.thorough
def test_the_recipe_of_image_folders_takes_weights_and_another_size_interpolates_positions(tiny, tmp_path, capsys):
    folder, _, _, before = tiny["ViTModel"]
    images = write_classes(tmp_path / "images")
    options = ["--data.resize", "20", "--total-steps", "1", "--evaluate-every-steps", "1", "--data.mix", "none"]
    options += ["--data.mix-alpha", "1.0"]
    assert train("vit_cifar10", folder, images, tmp_path / "run", *options, "--checkpoint-every-steps", "1") == 0
    printed = capsys.readouterr().out
    assert "its head is initialised at random" in printed
    assert "its pooler is not used" in printed
    run = jaxnlp.load_run(tmp_path / "run", checkpoint="latest")
    assert run.processor.preprocessing == Preprocessing((20, 20), resample=2, conversion="pillow")
    expected = resized_positions(before.params["positions"], before.model.config, 20)
    found = run.params["positions"]
    assert found.shape == expected.shape == (26, 16)
    assert 0.0 < np.abs(np.asarray(found) - expected).max() < 0.05


@pytest.mark.thorough
def test_classes_of_the_weights_in_another_order_keep_the_head(tiny, tmp_path, caplog):
    folder, _, _, before = tiny["ViTForImageClassification"]
    images = write_classes(tmp_path / "images", names=("fish", "cat", "dog")[:2])
    (images / "dog").mkdir()
    for index in range(3):
        Image.new("RGB", (15, 12), (index, 0, 200)).save(images / "dog" / f"{index}.png")
    options = ["--total-steps", "1", "--evaluate-every-steps", "1", "--checkpoint-every-steps", "1"]
    options += ["--optimizer.learning-rate", "1e-9"]
    assert train("vit_finetune", folder, images, tmp_path / "run", *options) == 0
    assert "is not used" not in caplog.text
    run = jaxnlp.load_run(tmp_path / "run", checkpoint="latest")
    assert run.processor == before.processor
    np.testing.assert_allclose(run.params["head"]["kernel"], before.params["head"]["kernel"], atol=1e-6)


def trained_here(classes=("a", "b"), **changes):
    """A ViT of a run that began at random."""
    config = ViTConfig(patch=4, num_layers=2, num_heads=2, width=8, compute=EXACT, **changes)
    processor = ImageProcessor(12, 3, (0.4,) * 3, (0.3,) * 3, classes, Preprocessing.square(12))
    model = config.build(processor)
    params = random_parameters(model, np.zeros((1, 12, 12, 3), np.uint8))
    return Trained(Classification(), model, params, processor, name="runs/mine")


@pytest.mark.sweep(1)
@pytest.mark.parametrize("distillation", ["head", "none"])
def test_a_model_that_began_at_random_goes_out_and_comes_back_to_the_same_bits(distillation, files, tmp_path):
    run = trained_here(distillation=distillation)
    ExportClassifier(tmp_path / "out")(run)
    again = jaxnlp.load_pretrained(tmp_path / "out")
    jax.tree.map(np.testing.assert_array_equal, again.params, run.params)
    kind = transformers.ViTForImageClassification
    if distillation == "head":
        kind = transformers.DeiTForImageClassificationWithTeacher
    processor = transformers.AutoImageProcessor.from_pretrained(tmp_path / "out", backend="pil")
    opaque = [file for file in files if "alpha" not in file.name and "deep" not in file.name]
    shares = [[*one.probabilities.values()] for one in run.predict(opaque)]
    expected = probabilities(kind.from_pretrained(tmp_path / "out").eval(), processor, opaque)
    np.testing.assert_allclose(shares, expected, atol=1e-5)


@pytest.mark.parametrize("changes", [{"pooling": "mean"}, {"stem": "convolutional"}, {"pooler_width": 4}], ids=str)
def test_layers_that_transformers_does_not_have_are_refused_in_one_line(changes, tmp_path):
    with pytest.raises(WeightsError, match=r"^runs/mine: Transformers' ViT .* model\..*; give --format jax$") as caught:
        ExportClassifier(tmp_path / "out")(trained_here(**changes))
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())
