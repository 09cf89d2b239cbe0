"""`jaxnlp evaluate` and `jaxnlp generate` with a run of a word language model."""

import json
import math

import numpy as np
import pytest

from data.word_text import WordText
from jaxnlp.__main__ import main as jaxnlp_main
from jaxnlp.models.recurrent_lm import RecurrentLMConfig
from jaxnlp.runs import load_run
from jaxnlp.tasks.language_model import RecurrentLanguageModel
from jaxnlp.tasks.language_model.evaluators import Continuations, Perplexity, Validation, next_word_losses
from train import evaluate
from train.evaluate import Options

pytestmark = pytest.mark.thorough


@pytest.fixture(scope="module")
def run(tiny_config, small_text, quick_fit, tmp_path_factory):
    """A word language model of eleven words, trained for twelve steps."""
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
    quick_fit(tiny_config(data=data, model=model, task=RecurrentLanguageModel()), folder)
    return folder


def score(run, evaluator, **options):
    return evaluate.score(run, evaluator, Options(**options)).evaluation


def test_perplexity_is_that_of_the_validation_loss(run):
    perplexity, tokens = score(run, Perplexity()).metrics["perplexity"]
    loss = score(run, Validation()).metrics["loss"]
    np.testing.assert_allclose(perplexity, math.exp(loss.value), rtol=1e-5)
    assert tokens == loss.count


def test_perplexity_with_a_cache_is_recorded_under_its_own_name_with_its_settings(run, tmp_path):
    ledger = tmp_path / "ledger.json"
    options = ["--cache-window", "5", "--cache-weight", "0.2", "--record", str(ledger)]
    assert jaxnlp_main(["evaluate", str(run), "perplexity", *options]) == 0
    (entry,) = json.loads(ledger.read_text())
    assert entry["metric"] == "perplexity_with_cache"
    assert (entry["cache"]["cache_window"], entry["cache"]["cache_weight"]) == (5, 0.2)


def test_next_words_of_a_file_are_counted_in_windows(run, tmp_path, capsys):
    """They were printed as tokens once."""
    size = load_run(run).processor.size
    generator = np.random.default_rng(0)
    inputs, targets = generator.integers(0, size, (4, 6)), generator.integers(0, size, 4)
    np.savez(tmp_path / "prediction.npz", inp=inputs.astype(np.int32), out=targets.astype(np.int32))
    assert jaxnlp_main(["evaluate", str(run), "next_word", "--file", str(tmp_path / "prediction.npz")]) == 0
    found = load_run(run)
    expected = next_word_losses(found.model, found.params, inputs.astype(np.int32), targets).mean()
    assert f"next_word_nll {expected:.4f}  (4 windows)" in capsys.readouterr().out


@pytest.fixture
def prompts(run, tmp_path):
    size = load_run(run).processor.size
    path = tmp_path / "generation.npy"
    np.save(path, np.random.default_rng(1).integers(0, size, (3, 4)).astype(np.int32))
    return path


def test_continuations_are_printed_after_their_prompts_or_written_to_a_file(run, prompts, tmp_path, capsys):
    lines = tmp_path / "lines.txt"
    arguments = [str(run), "continuations", "--file", str(prompts), "--max-new-tokens", "5"]
    assert jaxnlp_main(["evaluate", *arguments]) == 0
    printed = capsys.readouterr().out
    assert jaxnlp_main(["evaluate", *arguments, "--predictions", str(lines)]) == 0
    assert capsys.readouterr().out == f"predictions in {lines}\n"
    assert lines.read_text() == printed
    found, given = load_run(run), np.load(prompts)
    words = found.processor.words
    shown = [line.split(" | ") for line in printed.splitlines()]
    assert [begin.split() for begin, _ in shown] == [[words[i] for i in row] for row in given]
    assert [len(added.split()) for _, added in shown] == [5, 5, 5]
    first = np.asarray(found.model.predict(found.params, given)).argmax(axis=1)
    assert [added.split()[0] for _, added in shown] == [words[i] for i in first]


def test_another_run_scores_the_continuations(run, prompts):
    evaluation = score(run, Continuations(scorer=str(run), max_new_tokens=5), file=prompts)
    assert evaluation.metrics["scorer_perplexity"].count == 15
    assert evaluation.remarks["scorer"]["recipe"] == "tiny"
    assert evaluation.remarks["scorer"]["config"]["widths"] == [5]


def test_unknown_words_of_a_prompt_are_counted_by_the_verb_generate(run, caplog):
    words = load_run(run).processor.words
    prompt = f"{words[3]} zzz {words[4]}\nyyy"
    assert jaxnlp_main(["generate", str(run), "--max-new-tokens", "2", "--prompt", prompt]) == 0
    assert "unknown words of the prompt become <unk>; their number: 2" in caplog.text


def test_prompts_that_are_a_text_are_refused_with_what_was_expected(run, tmp_path, capsys):
    (tmp_path / "prompts.npy").write_text("the cat\n")
    assert jaxnlp_main(["evaluate", str(run), "continuations", "--file", str(tmp_path / "prompts.npy")]) == 2
    assert "expected a .npy file of prompts: the ids of words [N, T]" in capsys.readouterr().err


def test_runs_of_other_models_do_not_have_these_evaluators(tiny_config, tiny_gpt, quick_fit, tmp_path, capsys):
    quick_fit(tiny_config(model=tiny_gpt, total_steps=1), tmp_path / "run")
    assert jaxnlp_main(["evaluate", str(tmp_path / "run"), "perplexity"]) == 2
    assert "has no evaluator 'perplexity'; there are: validation" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--cache-window", "3"], "there is no option --cache-window"),
        (["perplexity", "--cache-theta", "1.0"], "--cache-theta and --cache-weight apply only to a neural cache"),
        (["perplexity", "--scorer", "run"], "there is no option --scorer"),
        (["perplexity", "--num-beams", "2"], "there is no option --num-beams"),
        (["next_word", "--max-new-tokens", "3"], "there is no option --max-new-tokens"),
        (["continuations", "--num-beams", "2", "--seed", "1"], "--num-beams cannot be combined with"),
        (["continuations", "--seed", "3"], "--top-k, --top-p and --seed need --temperature"),
        (["perplexity", "--predictions", "lines.txt"], "--predictions: validation has nothing to predict"),
        (["next_word"], "does not have the split 'prediction'"),
    ],
    ids=str,
)
def test_options_that_an_evaluator_does_not_have_are_refused(run, capsys, arguments, message):
    assert jaxnlp_main(["evaluate", str(run), *arguments]) == 2
    assert message in capsys.readouterr().err


def test_what_cannot_be_written_is_one_line(run, prompts, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    place = tmp_path / "file" / "lines.txt"
    arguments = ["continuations", "--file", str(prompts), "--predictions", str(place)]
    assert jaxnlp_main(["evaluate", str(run), *arguments]) == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith(f"error: {tmp_path / 'file'}")
