import json
import math
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from train.language import NeuralCache, next_word_losses

from data.word_text import WordText
from jaxnlp import __main__ as commands
from jaxnlp.decoding.beam import beam_search
from jaxnlp.decoding.sampling import Sampling
from jaxnlp.models.recurrent_lm import RecurrentLMConfig
from jaxnlp.runs import load_run, make_decoder
from train import evaluate
from train.evaluate import Evaluate, score


@pytest.fixture(scope="module")
def run(tiny_config, small_text, quick_fit, tmp_path_factory):
    """A word language model of eleven words, twelve steps old."""
    data = WordText(
        source="text_file",
        path=str(small_text),
        batch_size=8,
        sequence_length=4,
        length_multiple=2,
        minimum_count=1,
        evaluation_batch_size=3,
    )
    model = RecurrentLMConfig(embedding_width=4, widths=(5,), output_dropout_rate=0.3)
    folder = tmp_path_factory.mktemp("runs") / "words"
    quick_fit(tiny_config(data=data, model=model, objective="next_token_carried"), folder)
    return folder


@pytest.fixture(autouse=True)
def no_cache_of_programs(monkeypatch):
    for program in (evaluate, commands):
        monkeypatch.setattr(program, "use_compilation_cache", lambda folder: None)


def test_perplexity_is_that_of_the_validation_loss(run):
    values = score(Evaluate(run, task="perplexity")).values
    loss, tokens = score(Evaluate(run)).values["loss"]
    np.testing.assert_allclose(values["perplexity"][0], math.exp(loss), rtol=1e-5)
    assert values["perplexity"][1] == tokens


def test_perplexity_with_a_cache_is_recorded_under_its_own_name_with_its_settings(run, tmp_path):
    ledger = tmp_path / "ledger.json"
    arguments = ["--task", "perplexity", "--cache-window", "5", "--cache-share", "0.2", "--record", str(ledger)]
    assert evaluate.main([str(run), *arguments]) == 0
    (entry,) = json.loads(ledger.read_text())
    assert entry["metric"] == "perplexity_with_cache"
    assert (entry["cache"]["cache_window"], entry["cache"]["cache_share"]) == (5, 0.2)


def test_next_words_of_a_fixture(run, tmp_path, capsys):
    size = load_run(run).vocabulary.size
    generator = np.random.default_rng(0)
    inputs, targets = generator.integers(0, size, (4, 6)), generator.integers(0, size, 4)
    np.savez(tmp_path / "prediction.npz", inp=inputs.astype(np.int32), out=targets.astype(np.int32))
    assert evaluate.main([str(run), "--task", "next_word", "--file", str(tmp_path / "prediction.npz")]) == 0
    found = load_run(run)
    expected = next_word_losses(found.model, found.params, inputs.astype(np.int32), targets).mean()
    assert f"next_word_nll {expected:.4f}  (4 tokens)" in capsys.readouterr().out


@pytest.fixture
def prompts(run, tmp_path):
    size = load_run(run).vocabulary.size
    path = tmp_path / "generation.npy"
    np.save(path, np.random.default_rng(1).integers(0, size, (3, 4)).astype(np.int32))
    return path


def test_continuations_are_lines_of_words_that_the_model_finds_likeliest(run, prompts, tmp_path):
    lines = tmp_path / "lines.txt"
    arguments = ["--task", "complete", "--file", str(prompts), "--max-new-tokens", "5", "--predictions", str(lines)]
    assert evaluate.main([str(run), *arguments]) == 0
    found, held = load_run(run), np.load(prompts)
    texts = lines.read_text().splitlines()
    assert [len(text.split()) for text in texts] == [5, 5, 5]
    first = np.asarray(found.model.predict(found.params, held)).argmax(axis=1)
    assert [text.split()[0] for text in texts] == [found.vocabulary.words[i] for i in first]


def test_continuations_may_be_those_that_beams_find(run, prompts):
    found, held = load_run(run), np.load(prompts)
    scores = score(Evaluate(run, task="complete", file=prompts, judge=run, num_beams=4, max_new_tokens=5))
    beams = beam_search(make_decoder(found.model), found.params, held, num_beams=4, max_new_tokens=5)
    expected = [" ".join(found.vocabulary.words[i] for i in row) for row in np.asarray(beams.tokens)[:, 0]]
    assert scores.answers == expected
    assert scores.remarks["num_beams"] == 4
    likeliest = scores.values["judge_perplexity"][0]
    greedy, _ = score(Evaluate(run, task="complete", file=prompts, judge=run, max_new_tokens=5)).values[
        "judge_perplexity"
    ]
    assert likeliest <= greedy * 1.0001


def test_a_stop_is_a_word_that_the_model_knows_and_unknown_words_of_a_prompt_are_counted(run, capsys, caplog):
    words = load_run(run).vocabulary.words
    arguments = ["generate", str(run), "--max-new-tokens", "2", "--prompt", f"{words[3]} zzz {words[4]}\nyyy"]
    assert commands.main(arguments) == 0
    assert "not in the vocabulary, and are read as <unk>: 2" in caplog.text
    assert commands.main([*arguments, "--stop", "zzz"]) == 2
    assert "stop must be a word that the model knows, got 'zzz'" in capsys.readouterr().err
    caplog.clear()
    assert commands.main(["generate", str(run), "--max-new-tokens", "2", "--prompt", words[3], "--stop", "<unk>"]) == 0
    assert not caplog.text


@pytest.mark.parametrize("more", [["--task", "perplexity"], ["--task", "complete", "--seed", "1"]], ids=str)
def test_beams_that_nothing_reads_are_refused(run, more, capsys):
    with pytest.raises(SystemExit) as ended:
        evaluate.main([str(run), "--num-beams", "2", *more])
    assert ended.value.code == 2
    assert "beam search is for --task complete" in capsys.readouterr().err


def test_a_judge_scores_the_continuations_alone(run, prompts):
    found, held = load_run(run), np.load(prompts)
    scores = score(Evaluate(run, task="complete", file=prompts, judge=run, max_new_tokens=5))
    words = {word: i for i, word in enumerate(found.vocabulary.words)}
    added = np.array([[words[word] for word in line.split()] for line in scores.answers])
    logits = np.asarray(found.model.apply({"params": found.params}, np.concatenate([held, added], axis=1)), np.float64)
    logits = logits[:, 3:-1]
    aims = np.take_along_axis(logits, added[..., None], axis=2)[..., 0] - np.log(np.exp(logits).sum(axis=2))
    value, count = scores.values["judge_perplexity"]
    assert count == 15
    np.testing.assert_allclose(value, math.exp(-aims.mean()), rtol=1e-4)


def test_a_judge_of_other_words_is_refused(run, prompts, tmp_path, capsys):
    other = shutil.copytree(run, tmp_path / "other")
    held = json.loads((other / "vocabulary.json").read_text())
    held["words"] = held["words"][::-1]
    (other / "vocabulary.json").write_text(json.dumps(held))
    arguments = ["--task", "complete", "--file", str(prompts), "--judge", str(other)]
    assert evaluate.main([str(run), *arguments]) == 2
    assert "have different vocabularies; take a judge of these words" in capsys.readouterr().err


@pytest.fixture
def homework(run, tmp_path, monkeypatch):
    """A folder as the homework's, of the run's words; returns its `dataset`."""
    folder = tmp_path / "cmu11785_hw4p1"
    for part in ("dataset", "fixtures"):
        (folder / part).mkdir(parents=True)
    np.save(folder / "dataset" / "vocab.npy", np.array(load_run(run).vocabulary.words))
    np.savez(folder / "fixtures" / "prediction.npz", inp=np.ones((2, 3), np.int64), out=np.array([0, 2]))
    np.save(folder / "fixtures" / "generation.npy", np.ones((2, 3), np.int64))
    monkeypatch.setenv("JAXNLP_DATA", str(tmp_path))
    return folder / "dataset"


@pytest.mark.parametrize("task", ["next_word", "complete"])
def test_the_homeworks_fixtures_are_for_its_words(run, homework, capsys, task):
    assert evaluate.main([str(run), "--task", task]) == 0
    np.save(homework / "vocab.npy", np.array(load_run(run).vocabulary.words[::-1]))
    assert evaluate.main([str(run), "--task", task]) == 2
    message = f"holds ids of the words in {homework}, and the run's words are others: give --file"
    assert message in capsys.readouterr().err


def test_continuations_are_shown_behind_their_prompts(run, prompts, capsys):
    assert evaluate.main([str(run), "--task", "complete", "--file", str(prompts), "--max-new-tokens", "2"]) == 0
    words = load_run(run).vocabulary.words
    shown = [line.split(" | ") for line in capsys.readouterr().out.splitlines()]
    assert [begun.split() for begun, _ in shown] == [[words[i] for i in row] for row in np.load(prompts)]
    assert [len(added.split()) for _, added in shown] == [2, 2, 2]


def test_prompts_that_are_a_text_are_refused_with_what_was_expected(run, tmp_path, capsys):
    (tmp_path / "prompts.txt").write_text("the cat\n")
    assert evaluate.main([str(run), "--task", "complete", "--file", str(tmp_path / "prompts.txt")]) == 2
    assert "expected a .npy file of prompts: the ids of words [N, T]" in capsys.readouterr().err


def test_a_run_with_cudnn_is_scored_where_there_is_none(run, tmp_path):
    other = shutil.copytree(run, tmp_path / "other")
    config = json.loads((other / "config.json").read_text())
    assert config["model"]["implementation"] == "auto"
    config["model"]["implementation"] = "cudnn"
    (other / "config.json").write_text(json.dumps(config))
    assert score(Evaluate(other)).values == score(Evaluate(run)).values


def test_runs_of_other_models_have_no_such_tasks(tiny_config, tiny_gpt, quick_fit, tmp_path, capsys):
    quick_fit(tiny_config(model=tiny_gpt, total_steps=1), tmp_path / "run")
    assert evaluate.main([str(tmp_path / "run"), "--task", "perplexity"]) == 2
    assert "is no recurrent language model: leave out --task" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"neural_cache": NeuralCache(cache_window=3)}, "give --task perplexity and --cache-window"),
        (
            {"neural_cache": NeuralCache(cache_theta=1.0), "task": "perplexity"},
            "give --task perplexity and --cache-window",
        ),
        ({"judge": "run"}, "give --judge with --task complete"),
        ({"task": "perplexity", "predictions": Path("lines.txt")}, "leave out --predictions"),
        ({"task": "next_word", "split": "dev"}, "leave out --split"),
        ({"task": "next_word", "max_new_tokens": 3}, "give --task complete"),
        ({"task": "perplexity", "sampling": Sampling(temperature=0.5)}, "give --task complete"),
        ({"seed": 1}, "give --task complete"),
        ({"seed": -1}, "seed must lie in [0, 2^32), got -1"),
        ({"task": "complete", "max_new_tokens": 0}, "max_new_tokens must be at least 1, got 0"),
        ({"task": "complete", "sampling": Sampling(0.0, top_k=5)}, "at temperature 0 nothing is drawn"),
        ({"task": "complete", "sampling": Sampling(0.0, top_p=0.5)}, "at temperature 0 nothing is drawn"),
        ({"task": "complete", "seed": 3}, "at temperature 0 nothing is drawn"),
        ({"task": "complete", "num_beams": 4, "sampling": Sampling(0.0, top_k=5)}, "leave out temperature, top_k"),
        ({"task": "complete", "record": Path("ledger.json")}, "give --judge RUN"),
        ({"split": "test", "file": Path("text.txt")}, "give --split test or --file, not both"),
    ],
)
def test_options_of_other_tasks_are_refused(run, settings, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        Evaluate(run, **settings)


def test_what_cannot_be_written_is_told_in_one_line(run, prompts, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    arguments = ["--task", "complete", "--file", str(prompts), "--predictions", str(tmp_path / "file" / "lines.txt")]
    assert evaluate.main([str(run), *arguments]) == 2
    assert capsys.readouterr().err.startswith("error: cannot write: ")
