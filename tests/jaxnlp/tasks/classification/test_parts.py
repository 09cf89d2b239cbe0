"""Several parts of one model: their losses, metrics, predictions, lines and reports."""

import dataclasses
import functools
import io
import json
import re
import sys

import jax
import numpy as np
import optax
import pytest
import scipy.special

from data.pipelines.table_batches import split_of_parts, table_buckets, table_split, tokenized
from data.text_table import TextTable
from jaxnlp.corpus import Corpus, DataError, Split
from jaxnlp.input_files.rows import chunks
from jaxnlp.models.bert import BertConfig
from jaxnlp.models.bert_classifier import BertClassifierConfig
from jaxnlp.targets import Number, OneClass
from jaxnlp.tasks.classification import Classification
from jaxnlp.tasks.classification.commands import Predict
from jaxnlp.tasks.classification.evaluators import Validation
from jaxnlp.text.classifier_processor import LabelledText, TextClassifierProcessor, TextPart
from jaxnlp.text.wordpiece import SPECIAL, WordPieceVocabulary
from tests.random_parameters import random_parameters
from train.config import TrainConfig
from train.evaluation.scoring import SplitScoring
from train.parallel import make_parallel
from train.step import init_state, train_step

VOCABULARY = WordPieceVocabulary.of_pieces(list(SPECIAL))
PARTS = {
    "sst": TextPart(OneClass(("0", "1", "2", "3", "4"))),
    "quora": TextPart(OneClass(("0", "1")), 2),
    "sts": TextPart(Number(0.0, 5.0), 2),
}
LABELS = {"sst": [4, 0, 2], "quora": [1, 0, 1], "sts": [5.0, 0.0, 2.2]}
CONFIG = BertClassifierConfig(encoder=BertConfig(num_layers=1, num_heads=1, width=4, max_positions=6), pooling="mean")
COSINE = dataclasses.replace(CONFIG, similarity="cosine")
STEADY = dataclasses.replace(CONFIG.encoder, dropout_rate=0.0, attention_dropout_rate=0.0)


def processor(*names):
    pairs = "apart" if {"quora", "sts"} & {*names} else "together"
    return TextClassifierProcessor(VOCABULARY, 6, tuple((name, PARTS[name]) for name in names), pairs)


def corpus(*names):
    return Corpus((), {}, processor(*names), "", "")


def batch(name):
    """Rows of one or two texts of up to five tokens; the last row is padding."""
    generator, part = np.random.default_rng(0), PARTS[name]
    shape = (4, 2, 5) if part.texts == 2 else (4, 5)
    tokens = generator.integers(0, VOCABULARY.size, shape).astype(np.int32)
    return {
        "tokens": tokens,
        "segments": np.zeros_like(tokens),
        "attention_mask": np.arange(5) < generator.integers(1, 6, (*shape[:-1], 1)),
        "loss_mask": np.array([True, True, True, False]),
        f"{name}/labels": part.targets.array([*LABELS[name], LABELS[name][0]]),
    }


@functools.cache
def build(names, config=COSINE, scale=10.0):
    model = config.build(processor(*names))
    inputs = config.inputs(processor(*names))
    return model, jax.tree.map(lambda x: np.float32(scale * x), random_parameters(model, *inputs, spread=0.02))


def measure(task, names, name, key=None, config=COSINE):
    """The objective and the metrics of a batch of a part."""
    model, params = build(names, config)
    value, (metrics, _) = jax.jit(task.objective(model, corpus(*names)).loss)(params, batch(name), key, ())
    return float(value), {metric: np.array(pair) for metric, pair in metrics.items()}


@pytest.mark.thorough
@pytest.mark.parametrize("name", PARTS)
def test_each_part_has_its_loss_and_accuracy_by_definition(name):
    task, weights = Classification(part_weights=(2.0, 3.0, 5.0)), {"sst": 2.0, "quora": 3.0, "sts": 5.0}
    model, params = build(tuple(PARTS))
    held, expected = batch(name), np.array(LABELS[name])
    apply = jax.jit(functools.partial(model.apply, part=name))
    outputs = np.asarray(apply({"params": params}, *(held[array] for array in CONFIG.reads)))[:3]
    if name == "sts":
        losses, right = (outputs[:, 0] - expected / 5.0) ** 2, None
    else:
        losses = -scipy.special.log_softmax(outputs, axis=1)[np.arange(3), expected]
        right = outputs.argmax(axis=1) == expected
    value, metrics = measure(task, tuple(PARTS), name)
    np.testing.assert_allclose(value, weights[name] * np.mean(losses), rtol=1e-5)
    np.testing.assert_allclose(metrics["objective"], [weights[name] * np.sum(losses), 3.0], rtol=1e-5)
    np.testing.assert_allclose(metrics[f"{name}/loss"], [np.sum(losses), 3.0], rtol=1e-5)
    assert (right is None) == (f"{name}/accuracy" not in metrics)
    if right is not None:
        np.testing.assert_array_equal(metrics[f"{name}/accuracy"], [right.sum(), 3.0])
    assert "loss" not in metrics  # the order of the parts' batches would weight it
    loss = task.objective(model, corpus(*PARTS)).loss
    gradients = jax.jit(jax.grad(lambda p, batch: loss(p, batch, jax.random.key(0), ())[0]))(params, held)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradients))
    assert any(leaf.any() for leaf in jax.tree.leaves(gradients["encoder"]))


@pytest.mark.thorough
@pytest.mark.parametrize("fields", [{"label_smoothing": 0.5}, {"part_label_smoothing": (0.5, 0.0)}])
def test_smoothing_changes_the_objective_of_training_but_no_plain_loss(fields):
    config = dataclasses.replace(CONFIG, head_dropout_rate=0.0, encoder=STEADY)
    names, key, smoothing = ("sst", "quora"), jax.random.key(0), Classification(**fields)
    for name, smoothed in (("sst", True), ("quora", "label_smoothing" in fields)):
        plain, expected = measure(Classification(), names, name, config=config)
        assert measure(smoothing, names, name, config=config)[0] == plain
        value, metrics = measure(smoothing, names, name, key, config=config)
        assert (abs(value - plain) > 1e-3) == smoothed
        np.testing.assert_allclose(metrics["objective"], [3 * value, 3.0], rtol=1e-5)
        np.testing.assert_allclose(metrics[f"{name}/loss"], expected[f"{name}/loss"], rtol=1e-5)


@pytest.mark.thorough
@pytest.mark.parametrize("names", [("sst",), ("sts",), ("sst", "quora", "sts")])
def test_every_metric_of_training_is_declared_with_its_unit(names):
    task = Classification()
    declared = task.metrics(processor(*names), Split())
    for name in names:
        assert measure(task, names, name, jax.random.key(0))[1].keys() <= declared.keys()
    units = {("sst",): "nats", ("sts",): "squared error"}
    assert declared["loss"].unit == units.get(names, "nats and squared error")
    assert all(kind.better == "lower" for name, kind in declared.items() if name.endswith("loss"))
    assert (declared["mean_score"].better, declared["objective"].training_only) == ("higher", True)


@pytest.mark.thorough
def test_a_step_on_two_parts_logs_the_weighted_sum_of_their_losses():
    task = Classification(part_weights=(2.0, 0.5), gradient_surgery=True)
    model, params = build(("sst", "sts"), dataclasses.replace(COSINE, encoder=STEADY))
    optimizer = optax.with_extra_args_support(optax.sgd(0.1))
    state = init_state(params, optimizer, jax.random.key(1), ema=False)
    objective = task.objective(model, corpus("sst", "sts"))
    step = jax.jit(functools.partial(train_step, objective=objective, optimizer=optimizer))
    _, output = step(state, {name: batch(name) for name in ("sst", "sts")})
    (sst, rows), (sts, other_rows) = output.metrics["sst/loss"], output.metrics["sts/loss"]
    assert rows == other_rows == 3
    np.testing.assert_allclose(output.metrics["objective"], [6 * (2.0 * sst / 3 + 0.5 * sts / 3), 6.0], rtol=1e-5)
    assert (sst > 0.1, sts > 0.01, objective.progress) == (True, True, "objective")


@pytest.mark.parametrize(
    ("task", "names", "message"),
    [
        ({"part_weights": (1.0,)}, "sst sts", "task.part_weights needs a value for each of data.parts, sst, sts"),
        ({"part_label_smoothing": (0.1,)}, "sst sts", "task.part_label_smoothing needs a value for each"),
        ({"part_weights": (1.0,)}, "", "task.part_weights needs a value for each of data.parts, none"),
        ({"gradient_surgery": True}, "sst sts", "set data.schedule together"),
    ],
)
def test_a_config_whose_parts_do_not_fit_is_refused(task, names, message):
    data = TextTable(parts=tuple(names.split()), max_length=6, pairs="apart" if "sts" in names else "together")
    with pytest.raises(ValueError, match=message):
        TrainConfig(recipe="r", data=data, model=CONFIG, task=Classification(**task))


@pytest.mark.parametrize(
    ("names", "task", "message"),
    [
        ("sts", {"label_smoothing": 0.1}, "task.label_smoothing applies only to classes"),
        ("sts", {"part_label_smoothing": (0.1,)}, "task.part_label_smoothing applies only to classes"),
        ("sst sts", {"balanced": True}, "task.balanced and task.class_weights apply only to data of one part"),
        ("sst quora", {"class_weights": (1.0,)}, "task.balanced and task.class_weights apply only to data of one part"),
    ],
)
def test_options_that_the_data_does_not_read_are_refused(names, task, message):
    Classification(label_smoothing=0.1).check_corpus(CONFIG, corpus("sst", "sts"))
    with pytest.raises(DataError, match=message):
        Classification(**task).check_corpus(CONFIG, corpus(*names.split()))


TEXTS = ["the cats sat", "a big dog ate " * 6, "fish .", "the mat", "on the mat sat the cat " * 3, "a"]
PAIRS = ["a cat sat", "the fish", "fish . " * 9, "the mat", "dogs", "big"]


def all_in_one_batch(trained, part, *columns):
    """The model's outputs for all rows, padded to all that it reads."""
    one = trained.processor.by_part[part]
    found = one.tokenize(list(zip(*columns, strict=True)))
    given = one.batch(found.tokens, found.segments, len(found.tokens), 40)
    apply = jax.jit(functools.partial(trained.model.apply, part=part))
    return np.asarray(apply({"params": trained.params}, *(given[name] for name in CONFIG.reads)))


@pytest.mark.sweep(1)
@pytest.mark.parametrize("part", ["sst", "reviews", "quora", "sts"])
def test_predictions_are_those_of_the_model_in_the_order_of_the_texts(trained, part):
    columns = [TEXTS] if part in ("sst", "reviews") else [TEXTS, PAIRS]
    outputs, found = all_in_one_batch(trained, part, *columns), trained.predict(*columns, part=part)
    if part == "sts":
        expected = 5.0 * np.clip(outputs[:, 0], 0.0, 1.0)
        np.testing.assert_allclose([one.label for one in found], expected, atol=1e-4)
        assert found[3].label == pytest.approx(5.0, abs=1e-4)
        return
    names = trained.processor.by_part[part].targets.names
    shares = scipy.special.softmax(outputs, axis=1)
    assert [one.label for one in found] == [names[row.argmax()] for row in shares]
    np.testing.assert_allclose([list(one.probabilities.values()) for one in found], shares, atol=1e-5)
    assert np.ptp(shares, axis=0).max() > 0.05
    (alone,) = trained.predict(*(column[2:3] for column in columns), part=part)  # other texts change nothing
    assert alone.probabilities == pytest.approx(found[2].probabilities, abs=1e-5)


@pytest.mark.thorough
def test_a_part_is_chosen_where_several_fit(trained, make_trained):
    with pytest.raises(ValueError, match=r"choose a part \(--part\): sst, reviews"):
        trained.predict("the cat")
    with pytest.raises(ValueError, match="this model does not have the part 'nli'; it has: sst, reviews, quora, sts"):
        trained.predict("the cat", part="nli")
    assert make_trained("sst").predict("the cat").label in "01234"
    assert make_trained("sst", "sts").predict("the cat").label in "01234"
    for columns, part, message in (
        ((["a"],), "sts", "two texts per example; give pairs"),
        ((["a"], ["b"]), "sst", "one text per example; remove pairs"),
        ((["a"], []), "quora", "got 1 texts and 0 second texts"),
    ):
        with pytest.raises(ValueError, match=message):
            trained.predict(*columns, part=part)


def test_blank_texts_keep_their_places_and_no_texts_have_no_predictions(trained):
    cat, blank = trained.predict(["the cat", " "], part="sst")
    assert (cat, blank.label) == (trained.predict("the cat", part="sst"), None)
    for part in ("quora", "sts"):
        assert trained.predict("the cat", "", part=part).label is None
    assert trained.predict([], part="sst") == trained.predict([], [], part="sts") == []


def printed(capsys):
    out, err = capsys.readouterr()
    assert err == ""
    return [line.split("\t") for line in out.splitlines()]


@pytest.mark.thorough
def test_every_fitting_part_is_named_where_none_is_chosen(trained, capsys):
    texts, pairs = ("the cats sat", "a big\tdog\nate"), ("the fish", "the mat\u2028.")
    Predict(inputs=texts, pair=pairs)(trained)
    lines = printed(capsys)
    assert [line[0] for line in lines] == ["quora", "sts"] * 2
    assert [line[-2:] for line in lines[::2]] == [["the cats sat", "the fish"], ["a big dog ate", "the mat ."]]
    same = trained.predict(list(texts), list(pairs), part="quora")
    assert [line[1:3] for line in lines[::2]] == [[one.label, f"{one.probability:.2f}"] for one in same]
    Predict(inputs=("a dog",))(trained)
    assert [line[0] for line in printed(capsys)] == ["sst", "reviews"]
    Predict(inputs=("a dog",), part="reviews")(trained)
    ((label, *_, shown),) = printed(capsys)
    assert (label in ("negative", "positive"), shown) == (True, "a dog")
    Predict(inputs=texts[:1], pair=pairs[:1], json=True)(trained)
    quora, sts = map(json.loads, capsys.readouterr().out.splitlines())
    assert (quora["text"], quora["pair"], quora["part"], sts["part"]) == (texts[0], pairs[0], "quora", "sts")
    assert quora["class"] == max(quora["probabilities"], key=quora["probabilities"].get)
    assert sts["number"] == pytest.approx(trained.predict(texts[0], pairs[0], part="sts").label, abs=1e-4)


@pytest.mark.parametrize(
    ("name", "content", "parts"),
    [
        ("one.csv", "text,label\nthe cat,3\n", ["sst", "reviews"]),
        ("two.csv", "text,pair,score\nthe cat,a dog,3\n", ["quora", "sts"]),
        ("one.txt", "the cat\n", ["sst", "reviews"]),
        ("two.txt", "the cat\ta dog\n", ["quora", "sts"]),
    ],
)
def test_a_file_is_predicted_by_all_parts_with_its_number_of_texts(trained, tmp_path, capsys, name, content, parts):
    (tmp_path / name).write_text(content)
    Predict(file=tmp_path / name)(trained)
    assert [line[0] for line in printed(capsys)] == parts


def test_predictions_of_the_first_lines_do_not_wait_for_the_others(trained, capsys, monkeypatch):
    """The second half of standard input looks at what was printed before it came."""
    seen = []

    class Half(io.RawIOBase):
        halves = iter([b"the cat\na dog\n", b"fish\n", b""])

        def readable(self):
            return True

        def readinto(self, buffer):
            seen.append(capsys.readouterr().out.count("\n"))
            content = next(self.halves)
            buffer[: len(content)] = content
            return len(content)

    monkeypatch.setattr("jaxnlp.tasks.classification.inputs.chunks", lambda rows: chunks(rows, 2))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(Half())))
    Predict(part="sst")(trained)
    assert seen[:2] == [0, 2]
    assert capsys.readouterr().out.count("\n") == 1


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"inputs": ("a",), "pair": ("b", "c")},
            "expected a second text for each text; got 1 texts, and 2 after --pair",
        ),
        ({"inputs": ("a",), "part": "sts"}, "expected a second text for each text; got 1 texts, and 0 after --pair"),
        ({"inputs": ("a",), "pair": ("b",), "part": "sst"}, "--pair applies only to pairs of texts; remove it"),
        ({"inputs": ("a",), "part": "nli"}, "this model does not have the part 'nli'"),
    ],
)
def test_texts_that_fit_no_part_are_refused_and_nothing_is_printed(trained, capsys, fields, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        Predict(**fields)(trained)
    assert capsys.readouterr() == ("", "")


EXAMPLES = {"sst": [0, 4, 2, 2, 1, 3], "quora": [1, 0, 1, 0, 0, 1], "sts": [4.0, 5.0, 1.5, 2.0, 0.0, 3.0]}


def scoring_of(trained, labels, name="validation"):
    """What the evaluator is given, with batches of two rows."""
    splits = {}
    for part, known in labels.items():
        texts = zip(TEXTS, PAIRS, strict=True) if PARTS[part].texts == 2 else zip(TEXTS, strict=True)
        rows = [
            LabelledText(f"{part}{n}", pair, label, "id")
            for n, (pair, label) in enumerate(zip(texts, known, strict=True))
        ]
        processor = trained.processor.by_part[part]
        buckets = table_buckets((8, processor.max_length), processor)
        splits[part] = table_split(rows, tokenized(processor, rows), processor, buckets, 2)
    objective = trained.task.objective(trained.model, Corpus((), {}, trained.processor, "", ""))
    layout = make_parallel("jit", jax.devices()[:1])
    return SplitScoring(
        trained, split_of_parts(splits), name, training=None, objective=objective, layout=layout, kept={}
    )


@pytest.fixture(scope="module")
def found(make_trained):
    """A model of three parts, and its evaluation."""
    trained = make_trained("sst", "quora", "sts", task=Classification(part_weights=(1.0, 2.0, 4.0)))
    return trained, Validation()(scoring_of(trained, EXAMPLES))


def test_metrics_of_parts_are_those_of_their_predictions_and_have_a_mean(found):
    trained, evaluation = found
    metrics = {name: metric.value for name, metric in evaluation.metrics.items()}
    numbers = [one.label for one in trained.predict(TEXTS, PAIRS, part="sts")]
    np.testing.assert_allclose(metrics["sts/pearson"], np.corrcoef(numbers, EXAMPLES["sts"])[0, 1], rtol=1e-4)
    chosen = [int(one.label) for one in trained.predict(TEXTS, part="sst")]
    np.testing.assert_allclose(metrics["sst/accuracy"], np.mean(np.equal(chosen, EXAMPLES["sst"])), rtol=1e-6)
    losses = [metrics["sst/loss"], 2.0 * metrics["quora/loss"], 4.0 * metrics["sts/loss"]]
    np.testing.assert_allclose(metrics["loss"], np.mean(losses), rtol=1e-6)
    scores = [metrics["sst/accuracy"], metrics["quora/accuracy"], (1 + metrics["sts/pearson"]) / 2]
    np.testing.assert_allclose(metrics["mean_score"], np.mean(scores), rtol=1e-6)
    assert evaluation.metrics["loss"].count == evaluation.metrics["mean_score"].count == 18
    declared = trained.task.metrics(trained.processor, scoring_of(trained, EXAMPLES).split)
    assert evaluation.metrics.keys() == declared.keys() - {"objective"}
    assert declared["sts/pearson"].title == "sts Pearson correlation"


def test_each_part_has_a_file_of_predictions_and_its_sections(found):
    trained, evaluation = found
    assert evaluation.predictions.keys() == {f"{part}-predictions.csv" for part in EXAMPLES}
    header, *lines = evaluation.predictions["sst-predictions.csv"].splitlines()
    assert header.startswith("id,text,label,predicted,")
    chosen = [one.label for one in trained.predict(TEXTS, part="sst")]
    assert [line.split(",")[0] for line in lines] == [f"sst{n}" for n in range(6)]
    assert [line.split(",")[3] for line in lines] == chosen
    assert {section.name.partition(": ")[0] for section in evaluation.sections} == set(EXAMPLES)
    assert "sts: Largest errors" in [section.name for section in evaluation.sections]


@pytest.mark.thorough
def test_a_part_without_labels_has_predictions_only(found):
    trained, _ = found
    evaluation = Validation()(scoring_of(trained, {"sts": [None] * 6}, "test"))
    assert (evaluation.metrics, evaluation.sections) == ({}, [])
    assert evaluation.predictions.keys() == {"sts-predictions.csv"}
