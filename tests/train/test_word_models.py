"""The recipes of the word language models take a few steps, small, on a text that needs no files."""

import json

import jax
import numpy as np
import pytest

import jaxnlp
from jaxnlp.__main__ import main
from train.cli.command_line import RunOptions, parse
from train.config import update
from train.run.init_from import begin
from train.run.setup import set_up

SMALL = ["--data.source", "python_docs", "--data.batch-size", "8", "--model.embedding-width", "6", "--total-steps", "3"]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("recipe", "widths"), [("lstm_lm_hw4", ["5", "4"]), ("lstm_lm_cpu", ["5", "6"]), ("awd_lstm", ["7", "7", "6"])]
)
def test_each_recipe_trains_and_shows_a_sample_and_its_words(quick_fit, tmp_path, recipe, widths):
    options = [
        *SMALL,
        "--data.sequence-length",
        "20",
        "--task.sample-prompt",
        "The",
        "--task.sample-tokens",
        "4",
        "--model.widths",
        *widths,
    ]
    config, _ = parse([recipe, *options], RunOptions(), program="train")
    # The text is long: few words of it are enough, and rare ones make the output layer slow.
    config = update(config, **{"data.minimum_count": 100, "data.evaluation_batch_size": 500})
    outcome = quick_fit(config, tmp_path)
    assert int(outcome.state.step) == 3
    assert int(outcome.state.skipped_updates) == 0
    sections = [json.loads(line)["name"] for line in (tmp_path / "sections.jsonl").read_text().splitlines()]
    assert sections == ["Samples", "Perplexity by position", "Nearest embeddings"]


CLASSIFIER = "--data.source table --data.path {} --data.batch-size 4 --total-steps 2 --optimizer.schedule.warmup 1 "
CLASSIFIER += "--evaluate-every-steps 2 --checkpoint-every-steps 2"


@pytest.mark.thorough
def test_a_recurrent_classifier_starts_from_a_language_model_of_its_texts_bit_for_bit(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rows = [f"the film is {('bad', 'good')[n % 2]} and {n % 5} is a number,{n % 2}" for n in range(40)]
    (tmp_path / "t.csv").write_text("\n".join(["text,label", *rows]))
    (tmp_path / "more.txt").write_text("a further text\n" * 3)
    table = CLASSIFIER.format("t.csv").split()
    small = [
        "--model.embedding-width",
        "8",
        "--model.widths",
        "6",
        "--task.num-frequent",
        "4",
        "--task.num-sampled",
        "3",
    ]
    further = ["--data.unlabelled", "more.txt", "--workdir", "texts"]
    assert main(["train", "text_rnn_pretrain", *table, *small, *further]) == 0
    classifier = ["train", "text_rnn", *table, "--init-from", "texts"]
    assert main([*classifier, "--workdir", "tuned"]) == 0
    before, tuned = (jaxnlp.load_run(name) for name in ("texts", "tuned"))
    assert tuned.processor.vocabulary == before.processor.vocabulary
    assert "further" in tuned.processor.words
    assert len(tuned.predict(["the film is good"])) == 1
    config, _ = parse(classifier[1:], RunOptions(), program="train")
    setup = set_up(begin(config))
    start = jax.jit(setup.initial_state)(setup.given).params
    assert set(start) - set(before.params) == {"attention", "attention_vector", "head"}
    for name in ("tokens", "recurrent"):
        latest = jaxnlp.load_run("texts", checkpoint="latest").params[name]
        jax.tree.map(np.testing.assert_array_equal, start[name], latest)
        for ours, theirs in zip(jax.tree.leaves(tuned.params[name]), jax.tree.leaves(latest), strict=True):
            assert (ours != theirs).any()
    capsys.readouterr()
    for words, message in (
        (["--model.widths", "9"], "model.widths: [9] -> [6]"),
        (["--data.vocabulary-size", "50"], "has a tokenizer; remove data.vocabulary_size"),
        (["--data.fold", "1"], "has read rows of this run's validation; set --data.fold 0"),
    ):
        assert main([*classifier, *words, "--workdir", "wrong"]) == 2
        assert message in capsys.readouterr().err
    assert main(["perplexity", "texts", "the film is good"]) == 0
    assert main(["generate", "texts", "--prompt", "the film", "--max-new-tokens", "4"]) == 0
    assert capsys.readouterr().out.splitlines()[1].startswith("the film ")
    for words in (["perplexity"], ["dynamic"], ["validation"], ["perplexity", "--file", "more.txt"]):
        assert main(["evaluate", "texts", *words]) == 0
