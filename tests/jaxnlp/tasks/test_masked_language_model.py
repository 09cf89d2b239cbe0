import dataclasses
import functools
import itertools

import chex
import jax
import numpy as np
import pytest

from data.masked_text import MaskedText
from jaxnlp.corpus import Split
from jaxnlp.metrics import means, total
from jaxnlp.models.bert import BertConfig
from jaxnlp.models.bert_pretraining import BertPretrainingConfig
from jaxnlp.models.gpt import GPTConfig
from jaxnlp.saving.serialization import ConfigError
from jaxnlp.tasks import MetricKind, Trained
from jaxnlp.tasks.masked_language_model import MaskedLanguageModel, Validation
from tests.processors import sized
from tests.random_parameters import random_parameters
from train.config import TrainConfig
from train.evaluation.scoring import SplitScoring
from train.optimizer import AdamW
from train.optimizer.schedules import Cosine
from train.parallel import make_parallel
from train.parallel.rows import pad_rows
from train.run.init_from import begin
from train.run.setup import set_up

VOCABULARY, LENGTH, PREDICTIONS = 17, 8, 3
ENCODER = BertConfig(num_layers=1, num_heads=2, width=8, max_positions=LENGTH)
MODEL = BertPretrainingConfig(encoder=ENCODER).build(sized(VOCABULARY))


def batch(rows=4, seed=0, predicted=None):
    generator = np.random.default_rng(seed)
    ends = generator.integers(PREDICTIONS, LENGTH + 1, rows)
    places = np.arange(LENGTH)[None]
    positions = np.stack([generator.permutation(end)[:PREDICTIONS] for end in ends]).astype(np.int32)
    predicted = generator.integers(0, PREDICTIONS + 1, rows) if predicted is None else np.full(rows, predicted)
    return {
        "tokens": generator.integers(0, VOCABULARY, (rows, LENGTH)).astype(np.int32),
        "segments": (places >= ends[:, None] // 2).astype(np.int32),
        "attention_mask": places < ends[:, None],
        "positions": positions,
        "targets": generator.integers(0, VOCABULARY, positions.shape).astype(np.int32),
        "predicted": np.arange(PREDICTIONS)[None] < predicted[:, None],
        "follows": generator.integers(0, 2, rows).astype(np.int32),
        "loss_mask": np.full(rows, True),
    }


@functools.cache
def params():
    """Larger than initial ones, so that all parts count."""
    return random_parameters(MODEL, np.zeros((1, 1), np.int32))


@functools.cache
def compiled(task):
    def loss(params, held, key):
        value, (metrics, _) = task.objective(MODEL, None).loss(params, held, key, ())
        return value, metrics

    return jax.jit(jax.value_and_grad(loss, has_aux=True))


PLAIN = MaskedLanguageModel()


def step(held, key, task=PLAIN):
    """Loss, metrics and gradient."""
    (loss, metrics), gradient = jax.device_get(compiled(task)(params(), held, key))
    return loss, metrics, gradient


def cross_entropy(logits, target):
    return np.log(np.exp(logits).sum()) - logits[target]


@pytest.mark.thorough
def test_loss_is_the_mean_cross_entropy_of_masked_tokens_plus_that_of_following_texts():
    held = batch()
    variables = {"params": params()}
    hidden, follows = jax.jit(MODEL.apply)(variables, held["tokens"], held["segments"], held["attention_mask"])
    hidden, follows = np.array(hidden, np.float64), np.array(follows, np.float64)
    table, bias = (
        np.array(a, np.float64) for a in (params()["encoder"]["tokens"]["embedding"], params()["heads"]["token_bias"])
    )
    masked, correct = [], 0
    for row, number in np.argwhere(held["predicted"]):
        logits = table @ hidden[row, held["positions"][row, number]] + bias
        masked.append(cross_entropy(logits, held["targets"][row, number]))
        correct += logits.argmax() == held["targets"][row, number]
    classes = np.where(held["follows"] == 1, 0, 1)
    following = [cross_entropy(logits, label) for logits, label in zip(follows, classes, strict=True)]
    right = (follows.argmax(axis=1) == classes).sum()
    loss, metrics, _ = step(held, None)
    expected = np.mean(masked) + np.mean(following)
    np.testing.assert_allclose(loss, expected, rtol=1e-5)
    np.testing.assert_allclose(metrics["loss"], [4 * expected, 4], rtol=1e-5)
    np.testing.assert_allclose(metrics["mlm/loss"], [np.sum(masked), len(masked)], rtol=1e-5)
    np.testing.assert_allclose(metrics["nsp/loss"], [np.sum(following), 4], rtol=1e-5)
    np.testing.assert_array_equal(metrics["mlm/accuracy"], [correct, len(masked)])
    np.testing.assert_array_equal(metrics["nsp/accuracy"], [right, 4])
    np.testing.assert_array_equal(metrics["positions_per_token"], [4 * LENGTH, held["attention_mask"].sum()])


def test_progress_is_the_number_of_tokens_without_padding():
    task = MaskedLanguageModel()
    assert task.objective(MODEL, None).progress == "positions_per_token"
    assert task.metrics(None, None)["positions_per_token"].of == "tokens"


@pytest.mark.thorough
def test_training_has_dropout_and_no_accuracy_of_masked_tokens():
    held = batch()
    losses = [float(step(held, jax.random.key(seed))[0]) for seed in (0, 0, 1)]
    assert losses[0] == losses[1]
    assert len({*losses, float(step(held, None)[0])}) == 3
    _, metrics, gradient = step(held, jax.random.key(0))
    assert metrics.keys() == {"loss", "mlm/loss", "nsp/loss", "nsp/accuracy", "positions_per_token"}
    assert all(leaf.any() for name, leaf in gradient["heads"]["transform"].items())


@pytest.mark.thorough
def test_padding_rows_change_nothing_but_the_number_of_positions():
    held = batch()
    expected = step(held, None)
    padded = pad_rows(held, 7)
    assert not padded["attention_mask"][4:].any()
    for _, metrics, _ in (expected, found := step(padded, None)):
        metrics["positions_per_token"] = metrics["positions_per_token"][1]
    chex.assert_trees_all_close(found, expected, rtol=1e-4, atol=1e-6)
    garbage = {name: np.concatenate([value, batch(3, seed=1, predicted=3)[name]]) for name, value in held.items()}
    garbage["loss_mask"][4:] = False
    garbage["targets"][4:] = -100
    loss, metrics, gradient = step(garbage, None)
    del metrics["positions_per_token"], expected[1]["positions_per_token"]
    chex.assert_trees_all_close((loss, metrics, gradient), expected, rtol=1e-4, atol=1e-6)


@pytest.mark.thorough
def test_positions_that_are_not_predicted_change_nothing():
    held = batch()
    expected = step(held, None)
    changed = {name: value.copy() for name, value in held.items()}
    changed["positions"][~held["predicted"]] = 0
    changed["targets"][~held["predicted"]] = -100
    chex.assert_trees_all_close(step(changed, None), expected, rtol=1e-5, atol=1e-6)


def test_a_batch_of_padding_has_loss_and_gradient_zero():
    held = {name: np.zeros_like(value) for name, value in batch().items()}
    loss, metrics, gradient = step(held, None)
    assert loss == 0.0
    del metrics["positions_per_token"]
    assert all(float(value) == 0.0 for pair in metrics.values() for value in pair)
    assert not any(leaf.any() for leaf in jax.tree.leaves(gradient))


def test_rows_without_masked_tokens_still_predict_whether_a_text_follows():
    held = batch(predicted=0)
    loss, metrics, gradient = step(held, None)
    np.testing.assert_allclose(loss, metrics["nsp/loss"][0] / 4, rtol=1e-6)
    np.testing.assert_array_equal(metrics["mlm/loss"], [0.0, 0.0])
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))


@pytest.mark.sweep(1)
@pytest.mark.parametrize("chunk", [1, 5, 100])
def test_a_loss_in_chunks_equals_that_of_all_logits_at_once(chunk):
    found, expected = step(batch(), None, MaskedLanguageModel(chunk_tokens=chunk)), step(batch(), None)
    chex.assert_trees_all_close(found, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.thorough
@pytest.mark.parametrize("changes", [{"label_smoothing": 0.3}, {"z_loss": 0.2}])
def test_smoothing_and_z_loss_change_the_objective_of_training_but_no_plain_loss(changes):
    """A regulariser within `loss` would be drawn on one axis with the plain loss of validation."""
    task, held, key = MaskedLanguageModel(**changes), batch(), jax.random.key(0)
    chex.assert_trees_all_equal(step(held, None, task), step(held, None))
    objective, regularised, _ = step(held, key, task)
    plain_objective, plain, _ = step(held, key)
    assert abs(objective - plain_objective) > 0.05
    np.testing.assert_allclose(regularised.pop("objective")[0] / 4, objective, rtol=1e-6)
    chex.assert_trees_all_close(regularised, plain, rtol=1e-5)
    assert "objective" in task.metrics(None, None)
    assert "objective" not in MaskedLanguageModel().metrics(None, None)


@pytest.mark.parametrize("key", [None, jax.random.key(0)])
def test_every_metric_is_declared(key):
    task = MaskedLanguageModel(label_smoothing=0.3)
    assert step(batch(), key, task)[1].keys() <= task.metrics(None, None).keys()
    assert task.metrics(None, None)["mlm/loss"] == MetricKind("masked tokens", "nats", "lower", title="MLM loss")


def validated(*batches):
    """What validation measures of a split that is cut into these batches."""
    layout = make_parallel("jit", jax.devices()[:1])
    trained = Trained(PLAIN, MODEL, layout.place(params()), None)
    split, objective = Split(batches), PLAIN.objective(MODEL, None)
    scoring = SplitScoring(trained, split, "validation", training=None, objective=objective, layout=layout, kept={})
    return Validation()(scoring).metrics


@pytest.mark.thorough
def test_validation_does_not_depend_on_how_the_split_is_cut_into_batches():
    held = batch(rows=6)
    held["predicted"][0] = True
    parts = [{name: value[part] for name, value in held.items()} for part in (slice(0, 2), slice(2, 6))]
    loss, pairs, _ = step(held, None)
    assert held["predicted"][:2].sum() * 2 != held["predicted"][2:].sum()  # by rows the means would be other ones
    for found in (validated(held), validated(*parts)):
        np.testing.assert_allclose(found["loss"], [loss, 6], rtol=1e-5)
        for name in ("mlm/loss", "mlm/accuracy", "nsp/loss", "nsp/accuracy"):
            np.testing.assert_allclose(found[name], [pairs[name][0] / pairs[name][1], pairs[name][1]], rtol=1e-5)
    assert validated() == {}


@pytest.mark.thorough
def test_validation_without_masked_tokens_has_the_loss_of_following_texts():
    found = validated(batch(predicted=0))
    assert found["loss"] == found["nsp/loss"]


def test_gradients_of_parts_that_have_other_means_are_not_accumulated(tmp_path):
    config = dataclasses.replace(training_config(tmp_path), accumulation_steps=2)
    with pytest.raises(ConfigError, match=r"MaskedLanguageModel is not a mean .* set accumulation_steps to 1, got 2"):
        set_up(begin(config))


@pytest.mark.thorough
def test_parts_with_as_many_masked_tokens_each_row_have_the_gradient_of_the_whole():
    held = batch(rows=6, predicted=2)
    parts = [{name: value[part] for name, value in held.items()} for part in (slice(0, 2), slice(2, 6))]
    first, second = (step(part, None)[2] for part in parts)
    mean = jax.tree.map(lambda a, b: (2 * a + 4 * b) / 6, first, second)
    chex.assert_trees_all_close(mean, step(held, None)[2], rtol=1e-4, atol=1e-6)


TOPICS, WORDS = 8, 5


def structured_text(documents=128, sentences=6):
    """Each document is about one of eight topics, and each topic has five words of its own."""
    generator, letters = np.random.default_rng(0), "bcdfghkm"
    words = [["".join(pair) for pair in itertools.product(letters[topic], "aeiou")] for topic in range(TOPICS)]
    texts = [
        "".join(" ".join(generator.choice(words[number % TOPICS], 6)) + "\n" for _ in range(sentences))
        for number in range(documents)
    ]
    return "\n".join(texts)


def training_config(folder):
    """Without dropout."""
    file = folder / "text.txt"
    file.write_text(structured_text())
    encoder = BertConfig(
        num_layers=1, num_heads=2, width=32, max_positions=32, dropout_rate=0.0, attention_dropout_rate=0.0
    )
    return TrainConfig(
        recipe="r",
        data=MaskedText(
            source="text_file",
            path=str(file),
            vocabulary_size=100,
            sequence_length=32,
            batch_size=16,
            validation_fraction=0.25,
        ),
        model=BertPretrainingConfig(encoder=encoder),
        task=MaskedLanguageModel(),
        optimizer=AdamW(learning_rate=5e-3, schedule=Cosine(warmup=20)),
        total_steps=300,
    )


@pytest.mark.thorough
def test_training_finds_the_structure_of_a_text(tmp_path):
    config = training_config(tmp_path)
    setup = set_up(begin(config))
    state = jax.jit(setup.initial_state)(setup.given)
    batches, update = iter(setup.corpus.train), jax.jit(setup.step)
    for _ in range(config.total_steps):
        with jax.numpy_dtype_promotion("standard"):  # Optax raises a Python float to an integer power
            state, _ = update(state, next(batches))
    split = setup.corpus.split("validation").batches
    targets = np.concatenate([held["targets"][held["predicted"]] for held in split])
    shares = np.unique(targets, return_counts=True)[1] / len(targets)
    entropy = -(shares * np.log(shares)).sum()
    measure = jax.jit(lambda params, held: setup.objective.loss(params, held, None, ())[1][0])
    scores = means(total([jax.device_get(measure(state.params, held)) for held in split]))
    assert len(targets) > 100
    assert entropy > 3.0  # ln 40 = 3.69 for equal shares, less in a small sample
    assert scores["mlm/loss"] < entropy - 1.0  # a model that knows the topic reaches ln 5 = 1.61
    assert scores["mlm/accuracy"] > 3 / (TOPICS * WORDS)
    np.testing.assert_allclose(scores["loss"], scores["mlm/loss"] + scores["nsp/loss"], rtol=0.1)


def config(**changes):
    fields = {"data": MaskedText(), "model": BertPretrainingConfig(), "task": MaskedLanguageModel()}
    return TrainConfig(recipe="r", **fields | changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": GPTConfig()}, "a masked language model needs a BertPretrainingConfig, got GPTConfig"),
        (
            {"data": MaskedText(sequence_length=513)},
            "the data's inputs have up to 513 tokens, but the model reads at most 512",
        ),
    ],
)
def test_a_model_or_data_that_do_not_fit_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        config(**changes)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"label_smoothing": 1.0}, r"task\.label_smoothing must be in \[0, 1\), got 1\.0"),
        ({"z_loss": -0.1}, r"task\.z_loss must be finite and not negative, got -0\.1"),
        ({"chunk_tokens": 0}, r"task\.chunk_tokens must be at least 1, got 0"),
    ],
)
def test_impossible_options_are_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        MaskedLanguageModel(**fields)
