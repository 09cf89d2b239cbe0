import dataclasses
import json

import numpy as np
import pytest
from PIL import Image

from configs.gpt_play_image import get_config
from data.image_pixels import ImagePixels
from jaxnlp.__main__ import main
from jaxnlp.corpus import Corpus, DataError
from jaxnlp.models.recurrent_lm import RecurrentLMConfig
from jaxnlp.runs import load_run
from jaxnlp.tasks.image_language_model import ImageLanguageModel
from jaxnlp.text.characters import CharacterVocabulary
from tests.jaxnlp.tasks.image_language_model.images import CONFIG, PALETTE
from train.config import update
from train.loop import fit


def test_what_texts_have_and_images_do_not_is_named(trained):
    assert [*trained.task.methods] == ["generate"]
    with pytest.raises(AttributeError, match="ImageLanguageModel has no 'perplexity'; it has: generate"):
        trained.perplexity("a text")
    with pytest.raises(ValueError, match=r"task.sample_prompt applies only to texts"):
        ImageLanguageModel(sample_prompt="a")


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
