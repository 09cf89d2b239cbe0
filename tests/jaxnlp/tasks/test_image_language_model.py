import base64
import dataclasses
import io
import json

import jax
import numpy as np
import pytest
from PIL import Image
from scipy.special import log_softmax

from configs.gpt_play_image import get_config
from data.image_pixels import ImagePixels, palette_of
from jaxnlp.__main__ import main
from jaxnlp.corpus import Corpus, DataError, Split
from jaxnlp.images.palette import START, sequences
from jaxnlp.models.gpt import GPTConfig
from jaxnlp.models.recurrent_lm import RecurrentLMConfig
from jaxnlp.runs import load_run
from jaxnlp.tasks import Trained
from jaxnlp.tasks.image_language_model import (
    COMPLETIONS,
    NOT_GIVEN,
    Generate,
    ImageLanguageModel,
    Validation,
    generate,
    sheet,
)
from jaxnlp.text.characters import CharacterVocabulary
from tests.random_parameters import random_parameters
from train.config import update
from train.evaluation.scoring import SplitScoring
from train.loop import fit
from train.parallel import make_parallel

IMAGES = np.random.default_rng(0).choice(np.uint8([0, 80, 160, 255]), (5, 4, 4, 1))
PALETTE = palette_of(IMAGES, 4)
CONFIG = GPTConfig(num_layers=1, num_heads=2, width=8, context_length=16)


@pytest.fixture(scope="module", autouse=True)
def standard_promotion():
    """As users have it."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


@pytest.fixture(scope="module")
def trained():
    model = CONFIG.build(PALETTE)
    params = jax.device_put(random_parameters(model, *CONFIG.inputs(PALETTE), spread=1.0))
    return Trained(ImageLanguageModel(), model, params, PALETTE, name="tiny")


def scoring_of(trained, images=IMAGES, **fields):
    ids = PALETTE.encode(images)
    batch = sequences(ids) | {"loss_mask": np.ones(ids.shape, bool)}
    trained = dataclasses.replace(trained, task=ImageLanguageModel(**fields))
    objective, layout = trained.task.objective(trained.model, None), make_parallel("jit", jax.devices()[:1])
    split = Split([batch], tuple(images))
    return SplitScoring(trained, split, "dev", training=None, objective=objective, layout=layout, kept={})


def opened(picture):
    with Image.open(io.BytesIO(picture)) as image:
        return np.asarray(image.convert("LA"))


def test_the_given_rows_are_kept_and_the_others_are_the_most_probable_ones(trained):
    found = trained.generate(IMAGES[0], temperature=0.0)
    assert (found.shape, found.dtype) == ((1, 4, 4, 1), np.uint8)
    np.testing.assert_array_equal(found[0, :2], IMAGES[0, :2])
    ids = PALETTE.encode(IMAGES[:1])[0, :8].tolist()
    for _ in range(8):  # without a cache
        tokens = np.int32([[START, *ids] + [0] * (15 - len(ids))])
        ids.append(int(np.argmax(trained.model.apply({"params": trained.params}, tokens)[0, len(ids)])))
    np.testing.assert_array_equal(found, PALETTE.decode(np.array([ids])))


def test_completions_differ_and_depend_only_on_the_seed(trained):
    first, again, other = (trained.generate(IMAGES[1], num_samples=6, seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()
    assert len({image.tobytes() for image in first}) > 1
    assert set(first.ravel()) <= {0, 80, 160, 255}


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


def test_what_texts_have_and_images_do_not_is_named(trained):
    assert [*trained.task.functions(trained.model)] == ["generate"]
    with pytest.raises(AttributeError, match="ImageLanguageModel has no 'perplexity'; it has: generate"):
        trained.perplexity("a text")
    with pytest.raises(ValueError, match=r"task.sample_prompt applies only to texts"):
        ImageLanguageModel(sample_prompt="a")


def test_a_picture_has_the_given_part_the_completions_and_the_image():
    found = np.stack([IMAGES, 255 - IMAGES], axis=1)
    pixels = opened(base64.b64decode(sheet(IMAGES, found, 2)))
    assert pixels.shape[:2] == (16 * (5 * 5 - 1), 16 * (4 * 5 - 1))
    small = pixels[8::16, 8::16, 0]
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
    assert opened((tmp_path / "out.png").read_bytes()).shape[:2] == (16 * 9, 16 * 24)
    Generate(num_samples=3, out=tmp_path / "new.png")(trained)
    assert opened((tmp_path / "new.png").read_bytes()).shape[:2] == (16 * 9, 16 * 9)
    with pytest.raises(ValueError, match=r"would have the format of .png files"):
        Generate(out=tmp_path / "out.jpg")(trained)
    with pytest.raises(FileNotFoundError, match=r"the image none.png"):
        Generate(("none.png",))(trained)


def test_validation_has_the_loss_of_all_pixels_and_pictures(trained):
    found = Validation()(scoring_of(trained))
    batch = sequences(PALETTE.encode(IMAGES))
    scores = log_softmax(np.asarray(trained.model.apply({"params": trained.params}, batch["tokens"])), axis=-1)
    losses = -np.take_along_axis(scores, batch["targets"][..., None], axis=-1)
    assert found.metrics["loss"] == pytest.approx((losses.mean(), 80), rel=1e-5)
    assert found.metrics["perplexity"].value == pytest.approx(np.exp(losses.mean()), rel=1e-5)
    assert [block.name for block in found.blocks] == ["Completions", "Samples"]
    rows, new = (opened(base64.b64decode(block.content.png)) for block in found.blocks)
    assert rows.shape[:2] == (16 * (4 * 5 - 1), 16 * ((COMPLETIONS + 2) * 5 - 1))
    assert new.shape[:2] == (16 * 19, 16 * 19)
    assert not Validation()(scoring_of(trained, sample_images=0)).blocks


def test_data_that_do_not_fit_are_refused_before_training():
    corpus = Corpus((), {}, PALETTE, "", "")
    ImageLanguageModel().check_corpus(CONFIG, corpus)
    ImageLanguageModel().check_corpus(RecurrentLMConfig(), corpus)
    with pytest.raises(DataError, match=r"16 pixels, but the model reads at most 8; set --model\.context-length 16"):
        ImageLanguageModel().check_corpus(dataclasses.replace(CONFIG, context_length=8), corpus)
    with pytest.raises(DataError, match="needs images, but the data has a CharacterVocabulary"):
        ImageLanguageModel().check_corpus(CONFIG, dataclasses.replace(corpus, processor=CharacterVocabulary.of("ab")))


@pytest.mark.thorough
def test_a_run_is_trained_scored_and_generates(tmp_path, capsys):
    fields = {"model.num_layers": 1, "model.width": 16, "model.num_heads": 2, "total_steps": 60}
    fields |= {"evaluate_every_steps": 30, "checkpoint_every_steps": 30, "optimizer.schedule.warmup": 5}
    folder = tmp_path / "run"
    fit(update(get_config(), **fields), folder)
    run = load_run(folder)
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    losses = [row["validation/loss"] for row in rows if "validation/loss" in row] or [0.0]
    assert losses[-1] < np.log(17)
    assert "Completions" in (folder / "report.html").read_text()
    image = ImagePixels().load(0).split("validation").examples[0]
    run.warm_up("generate", num_samples=2)
    assert run.generate(image, num_samples=2, temperature=0.8, top_k=5).shape == (2, 8, 8, 1)
    Image.fromarray(image[..., 0]).save(tmp_path / "image.png")
    out = str(tmp_path / "out.png")
    assert (
        main(["generate", str(folder), "--prompt", str(tmp_path / "image.png"), "--given", "0.25", "--out", out]) == 0
    )
    capsys.readouterr()
    assert main(["generate", str(folder), str(tmp_path / "image.png")]) == 2
    assert "did you mean --prompt" in capsys.readouterr().err
    assert main(["perplexity", str(folder), "a text"]) == 2
    assert "has no verb 'perplexity'" in capsys.readouterr().err
    assert main(["export", str(folder), str(tmp_path / "exported")]) == 2
    assert "give --format jax" in capsys.readouterr().err
