"""Commands that fine-tune RoBERTa and its kin on files, score them, and export them."""

import csv
import json

import numpy as np
import pytest
import transformers

import jaxnlp
from jaxnlp.__main__ import main
from tests.encoder_folders import write_folder
from train.cli.command_line import RunOptions, parse

FEW_STEPS = ["--total-steps", "2", "--evaluate-every-steps", "2", "--checkpoint-every-steps", "2"]
FAMILIES = ["roberta", "xlm-roberta", "distilbert", "electra", "modernbert"]


def config_of(*arguments):
    config, _ = parse([str(argument) for argument in (*arguments, *FEW_STEPS)], RunOptions(), program="jaxnlp train")
    return config


@pytest.fixture
def reviews(tmp_path):
    """A table of texts with a label."""
    draw = np.random.default_rng(0)
    with (tmp_path / "reviews.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["text", "stars"])
        for _ in range(40):
            label = int(draw.integers(2))
            rows.writerow([" ".join(draw.choice(["cat", "dog", "fish", "the"], 4)) + " big" * label, label])
    return tmp_path / "reviews.csv"


@pytest.mark.thorough
@pytest.mark.parametrize("family", FAMILIES)
def test_a_folder_is_fine_tuned_on_a_table_scored_and_loaded_in_transformers(
    family, reviews, quick_fit, tmp_path, capsys
):
    write_folder(family, tmp_path / "weights", "ForMaskedLM")
    data = ["--data.path", reviews, "--data.text", "text", "--data.label", "stars", "--data.max-length", "40"]
    options = ["--data.batch-size", "8", "--model.pooling", "pooler", "--init-from", tmp_path / "weights"]
    options += ["--init-new-tokens", "fish the", "<code>"]
    quick_fit(config_of("bert_classify", *data, *options), tmp_path / "run")
    run = str(tmp_path / "run")
    assert main(["evaluate", run]) == 0
    assert "validation accuracy" in capsys.readouterr().out
    assert main(["predict", run, "the big cat", "a dog"]) == 0
    predicted = [line.split("\t")[0] for line in capsys.readouterr().out.splitlines()]
    assert main(["export", run, str(tmp_path / "exported")]) == 0
    pipeline = transformers.pipeline("text-classification", str(tmp_path / "exported"), truncation=True)
    assert [row["label"] for row in pipeline(["the big cat", "a dog"])] == predicted
    new = pipeline.tokenizer("a fish the", add_special_tokens=False)["input_ids"][-1]
    assert new == len(pipeline.tokenizer) - 2 == pipeline.model.config.vocab_size - 2
    again = jaxnlp.load_pretrained(tmp_path / "exported").predict(["the big cat", "a dog"])
    assert [one.label for one in again] == predicted


WORDS = ["--data.source", "small_grammar", "--data.sentences", "40", "--data.held-out-sentences", "10"]
WORDS += ["--data.max-pieces", "128"]
PEOPLE = ["--data.source", "invented_people", "--data.people", "4", "--data.max-length", "128", "--data.overlap", "4"]


# Which family it is does not matter to a recipe: tests/jaxnlp/tasks/bert_verbs has all of both.
@pytest.mark.thorough
@pytest.mark.parametrize(
    ("family", "recipe", "options"),
    [
        ("roberta", "conll_tagger", WORDS),
        ("distilbert", "ud_parser_bert", [*WORDS, "--data.lengths", "16", "--data.tags", "none"]),
        ("electra", "bert_qa", [*PEOPLE, "--data.length-multiple", "128"]),
        ("modernbert", "conll_tagger", WORDS),
        ("modernbert", "bert_qa", [*PEOPLE, "--data.length-multiple", "128"]),
    ],
)
def test_taggers_parsers_and_models_that_find_answers_begin_with_a_folder(
    family, recipe, options, quick_fit, tmp_path, capsys
):
    write_folder(family, tmp_path / "weights", max_position_embeddings=130)
    start = ["--init-from", tmp_path / "weights", "--data.batch-size", "8"]
    quick_fit(config_of(recipe, *start, *options), tmp_path / "run")
    run, exported = str(tmp_path / "run"), tmp_path / "exported"
    assert main(["evaluate", run]) == 0
    assert main(["export", run, str(exported)]) == 0
    assert json.loads((exported / "config.json").read_text())["model_type"] == family
    transformers.AutoModel.from_pretrained(exported)
    if recipe == "conll_tagger":
        capsys.readouterr()
        assert main(["predict", run, "The cat sat in Rome ."]) == 0
        assert "Rome" in capsys.readouterr().out
    if recipe == "ud_parser_bert":
        assert main(["parse", run, "The cat sat in Rome ."]) == 0
        assert "sat" in capsys.readouterr().out
