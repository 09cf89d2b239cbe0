"""The README's commands about BERT from end to end: pretrain, export, fine-tune, score, use, and export again."""

import json

import chex
import jax
import numpy as np
import pytest
import transformers

from jaxnlp.__main__ import main
from jaxnlp.__main__ import main as jaxnlp_main
from jaxnlp.convert import read_pretrained
from jaxnlp.saving.serialization import ConfigError
from tests.run_folders import EVERY_SIGN
from tests.text_task_files import write_tables
from train.cli.command_line import RunOptions, parse
from train.run.init_from import begin

FEW_STEPS = ["--total-steps", "2", "--evaluate-every-steps", "2", "--checkpoint-every-steps", "2"]
WORDS = ["good", "bad", "film", "plot", "dog", "cat"]


def config_of(*arguments):
    config, _ = parse([str(argument) for argument in arguments], RunOptions(), program="jaxnlp train")
    return config


@pytest.fixture(scope="module")
def exported(tmp_path_factory, quick_fit):
    """A small BERT that `bert_pretrain` made of a text file, as a folder."""
    folder = tmp_path_factory.mktemp("bert") / EVERY_SIGN
    folder.mkdir()
    generator = np.random.default_rng(0)
    documents = ("".join(f"{' '.join(generator.choice(WORDS, 8))}\n" for _ in range(5)) for _ in range(30))
    (folder / "text.txt").write_text("\n".join(documents))
    shape = ["--model.encoder.num-layers", "1", "--model.encoder.num-heads", "2", "--model.encoder.width", "8"]
    data = ["--data.source", "text_file", "--data.path", folder / "text.txt", "--data.batch-size", "4"]
    data += ["--data.vocabulary-size", "60"]
    quick_fit(config_of("bert_pretrain", *shape, *data, *FEW_STEPS), folder / "pretrained")
    assert main(["export", str(folder / "pretrained"), str(folder / "exported")]) == 0
    return folder / "exported"


@pytest.mark.thorough
def test_what_was_pretrained_is_fine_tuned_scored_asked_and_exported(
    exported, quick_fit, tmp_path, monkeypatch, capsys
):
    (tmp_path / EVERY_SIGN).mkdir()
    data = ["--data.path", write_tables(tmp_path / EVERY_SIGN), "--data.max-length", "16", "--data.batch-size", "10"]
    quick_fit(config_of("bert_sst", "--init-from", exported, *data, *FEW_STEPS), tmp_path / "run")
    run = str(tmp_path / "run")
    assert jaxnlp_main(["evaluate", run]) == 0
    assert "validation accuracy" in capsys.readouterr().out
    assert jaxnlp_main(["evaluate", run, "--split", "test", "--predictions", str(tmp_path / "answers")]) == 0
    assert len((tmp_path / "answers").read_text().splitlines()) == 6
    capsys.readouterr()
    assert main(["predict", run, "good good film", "bad"]) == 0
    assert [line.split("\t")[-1] for line in capsys.readouterr().out.splitlines()] == ["good good film", "bad"]
    assert main(["embed", run, "good", "bad", "--out", str(tmp_path / "vectors.npy")]) == 0
    assert np.load(tmp_path / "vectors.npy").shape == (2, 8)
    assert main(["attention", run, "a good film", "--out", str(tmp_path / "page.html")]) == 0
    assert "<html" in (tmp_path / "page.html").read_text()
    assert main(["export", run, str(tmp_path / "back")]) == 0
    model = transformers.BertModel.from_pretrained(tmp_path / "back")
    assert (model.config.hidden_size, model.config.num_hidden_layers) == (8, 1)
    settings = json.loads((tmp_path / "back" / "tokenizer_config.json").read_text())
    assert settings["model_max_length"] == 16  # PyTorch's programs cut texts where the training did


@pytest.mark.thorough
def test_pretraining_continues_with_an_encoder_of_another_shape_than_the_recipes(exported):
    begun = begin(config_of("bert_pretrain", "--init-from", exported))
    assert (begun.config.model.encoder.width, begun.config.model.encoder.num_layers) == (8, 1)
    assert begun.params.keys() == {"encoder", "heads"}
    assert begun.processor == read_pretrained(exported).vocabulary


@pytest.mark.thorough
def test_a_shape_that_was_typed_is_refused(exported):
    typed = config_of("bert_pretrain", "--init-from", exported, "--model.encoder.width", "32")
    with pytest.raises(ConfigError, match=r"sets these fields of the model; remove them:\n  model\.encoder\.width: 32"):
        begin(typed)


@pytest.mark.thorough
def test_fine_tuning_begins_with_a_pretraining_run_without_an_export(exported):
    """The same parameters as from the exported folder."""
    places = (exported.parent / "pretrained", exported)
    run, folder = (begin(config_of("bert_sst", "--init-from", place, "--data.max-length", "16")) for place in places)
    assert (run.config.model.encoder.width, run.config.model.encoder.num_layers) == (8, 1)
    assert run.processor == folder.processor
    chex.assert_trees_all_equal(*({"encoder": jax.device_get(b.params["encoder"])} for b in (run, folder)))
