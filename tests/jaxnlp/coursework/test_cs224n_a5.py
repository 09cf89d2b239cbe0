import re

import flax.linen as nn
import numpy as np
import pytest

from jaxnlp.coursework import cs224n_a5
from jaxnlp.coursework.cs224n_a5 import attention, evaluate, evaluate_places
from jaxnlp.nn.attention import SelfAttention
from jaxnlp.nn.synthesizer import SynthesizerAttention
from jaxnlp.text.raw_texts import one_line
from tests.coursework_runs import QUESTION, names

PLACES = [("Where was Ann Lee born?", "Oslo"), ("Where was Lee Ann born?", "Rome"), (QUESTION, "Oslo")]
X = np.random.default_rng(0).normal(size=(2, 6, 8)).astype(np.float32)


@pytest.fixture
def dev(tmp_path):
    path = tmp_path / "birth_dev.tsv"
    path.write_text("".join(f"{question}\t{place}\n" for question, place in PLACES))
    return path


@pytest.fixture
def inputs(tmp_path):
    path = tmp_path / "birth_test_inputs.tsv"
    path.write_text("".join(f"{question}\n" for question, _ in PLACES))
    return path


def test_places_that_are_exactly_right_are_counted(dev, inputs):
    assert evaluate_places(dev, ["Oslo", "Rome", "Oslo"]) == (3.0, 3.0)
    assert evaluate_places(str(dev), ["London"] * 3) == (3.0, 0.0)
    assert evaluate_places(dev, ["Oslo", "rome", "Oslo "]) == (3.0, 1.0)
    assert evaluate_places(inputs, ["Oslo"] * 3) == (0.0, 0.0)


def test_a_prediction_file_has_the_runs_answers_one_a_line(dev, inputs, tmp_path, monkeypatch):
    answers = {question: f"{place}\nor not" if place == "Rome" else place for question, place in PLACES}
    monkeypatch.setattr(cs224n_a5, "ask", lambda run, questions: [answers[question] for question in questions])
    predictions = tmp_path / "out" / "dev.predictions"
    for corpus, counts in ((dev, (3.0, 2.0)), (inputs, (0.0, 0.0))):
        assert evaluate(names(), corpus, predictions) == counts
        assert predictions.read_text(encoding="utf-8") == "Oslo\nRome or not\nOslo\n"
        predictions.unlink()


@pytest.mark.thorough
def test_the_answers_are_those_of_the_runs_method_ask(inputs, tmp_path):
    evaluate(names(), str(inputs), str(tmp_path / "test.predictions"))
    written = (tmp_path / "test.predictions").read_text(encoding="utf-8")
    assert written == "".join(f"{one_line(place)}\n" for place in names().ask([question for question, _ in PLACES]))


@pytest.mark.parametrize(
    ("text", "predicted", "message"),
    [
        (f"{QUESTION}\tOslo\n", 2, "expected a place for each of the 1 lines of FILE, got 2"),
        (f"{QUESTION}\tOslo\n{QUESTION}\n", 2, "FILE, line 2: expected question TAB place, got 1 columns"),
    ],
    ids=["too many", "no place"],
)
def test_files_that_do_not_fit_are_refused(tmp_path, text, predicted, message):
    path = tmp_path / "dev.tsv"
    path.write_text(text)
    with pytest.raises(ValueError, match=re.escape(message.replace("FILE", str(path)))):
        evaluate_places(path, ["Oslo"] * predicted)


@pytest.mark.sweep(1)
@pytest.mark.parametrize("kind", ["gpt", "synthesizer"])
def test_later_positions_change_no_output_of_attention(kind):
    y = np.asarray(attention(names(kind), X))
    changed = np.asarray(attention(names(kind), np.concatenate([X[:, :4], X[:, 4:] + 1], axis=1)))
    assert y.shape == X.shape
    np.testing.assert_array_equal(changed[:, :4], y[:, :4])
    assert (changed[:, 4:] != y[:, 4:]).any(axis=-1).all()


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["gpt", "synthesizer"])
def test_attention_is_that_of_each_layer_in_the_model(kind):
    run, calls = names(kind, num_layers=2), []

    def record(call, arguments, options, context):
        output = call(*arguments, **options)
        if isinstance(context.module, SelfAttention | SynthesizerAttention) and context.method_name == "__call__":
            calls.append((arguments[0], output[0]))
        return output

    with nn.intercept_methods(record):
        run.model.apply({"params": run.inference_params}, run.processor.encode(QUESTION)[None])
    assert len(calls) == 2
    for layer, (x, expected) in enumerate(calls):
        size = np.abs(expected).max()  # a sum of float32 is exact to its largest terms
        np.testing.assert_allclose(attention(run, x, layer), expected, atol=1e-6 * size)


@pytest.mark.parametrize(
    ("kind", "x", "layer", "message"),
    [
        ("gpt", X, 1, "layer must be from 0 to 0, got 1"),
        ("gpt", X[0], 0, "expected x [B, T, D] with T at most 64 and D = 8, got x (6, 8)"),
        ("gpt", X[:, :, :4], 0, "D = 8, got x (2, 6, 4)"),
        ("synthesizer", np.zeros((1, 65, 8), np.float32), 0, "T at most 64"),
        ("perceiver", X, 0, "expected a GPT or a Synthesizer, got a Perceiver"),
    ],
)
def test_attention_that_does_not_exist_is_refused(kind, x, layer, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        attention(names(kind), x, layer)
