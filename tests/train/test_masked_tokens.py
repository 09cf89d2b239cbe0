import dataclasses
import functools
import itertools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from train.evaluation import compile_evaluation, evaluate
from train.objectives import LossConfig, masked_tokens

from data.character_text import CharacterText
from data.masked_text import MaskedText
from jaxnlp.models.bert import BertConfig
from jaxnlp.models.bert_pretraining import BertPretrainingConfig
from jaxnlp.models.gpt import GPTConfig
from train.config import TrainConfig
from train.loop import set_up, step_function
from train.optimizer import OptimizerConfig
from train.parallel import make_parallel, pad_rows

VOCABULARY, LENGTH, PREDICTIONS = 17, 8, 3
ENCODER = BertConfig(num_layers=1, num_heads=2, width=8, max_positions=LENGTH)
MODEL = BertPretrainingConfig(encoder=ENCODER).build(VOCABULARY)


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
    found = jax.jit(MODEL.init)(jax.random.key(0), jnp.zeros((1, 1), jnp.int32))["params"]
    leaves, tree = jax.tree.flatten(found)
    keys = jax.random.split(jax.random.key(1), len(leaves))
    return jax.tree.unflatten(
        tree, [leaf + 0.3 * jax.random.normal(key, leaf.shape) for leaf, key in zip(leaves, keys, strict=True)]
    )


@functools.cache
def compiled(config):
    return jax.jit(jax.value_and_grad(masked_tokens(MODEL, config), has_aux=True))


def step(held, key, config=None):
    """Loss, metrics and gradient."""
    (loss, metrics), gradient = compiled(config)(params(), held, key)
    return loss, metrics, gradient


def surprise(logits, target):
    return np.log(np.exp(logits).sum()) - logits[target]


def test_loss_is_the_sum_of_the_mean_surprises_at_masked_tokens_and_at_what_follows():
    held = batch()
    variables = {"params": params()}
    hidden, follows = jax.jit(MODEL.apply)(variables, held["tokens"], held["segments"], held["attention_mask"])
    hidden, follows = np.array(hidden, np.float64), np.array(follows, np.float64)
    table, bias = (
        np.array(a, np.float64) for a in (params()["encoder"]["tokens"]["embedding"], params()["heads"]["token_bias"])
    )
    masked, guessed = [], 0
    for row, number in np.argwhere(held["predicted"]):
        logits = table @ hidden[row, held["positions"][row, number]] + bias
        masked.append(surprise(logits, held["targets"][row, number]))
        guessed += logits.argmax() == held["targets"][row, number]
    classes = np.where(held["follows"] == 1, 0, 1)
    following = [surprise(logits, label) for logits, label in zip(follows, classes, strict=True)]
    right = (follows.argmax(axis=1) == classes).sum()
    loss, metrics, _ = step(held, None)
    expected = np.mean(masked) + np.mean(following)
    np.testing.assert_allclose(loss, expected, rtol=1e-5)
    np.testing.assert_allclose(metrics["loss"], [4 * expected, 4], rtol=1e-5)
    np.testing.assert_allclose(metrics["mlm/loss"], [np.sum(masked), len(masked)], rtol=1e-5)
    np.testing.assert_allclose(metrics["nsp/loss"], [np.sum(following), 4], rtol=1e-5)
    np.testing.assert_array_equal(metrics["mlm/accuracy"], [guessed, len(masked)])
    np.testing.assert_array_equal(metrics["nsp/accuracy"], [right, 4])


def test_training_has_dropout_and_does_not_count_right_guesses():
    held = batch()
    losses = [float(step(held, jax.random.key(seed))[0]) for seed in (0, 0, 1)]
    assert losses[0] == losses[1]
    assert len({*losses, float(step(held, None)[0])}) == 3
    _, metrics, gradient = step(held, jax.random.key(0))
    assert metrics.keys() == {"loss", "mlm/loss", "nsp/loss", "nsp/accuracy"}
    assert all(leaf.any() for name, leaf in gradient["heads"]["transform"].items())


def test_padding_rows_count_for_nothing_whatever_they_hold():
    held = batch()
    expected = step(held, None)
    padded = pad_rows(held, 7)
    assert not padded["attention_mask"][4:].any()
    chex.assert_trees_all_close(step(padded, None), expected, rtol=1e-4, atol=1e-6)
    garbage = {name: np.concatenate([value, batch(3, seed=1, predicted=3)[name]]) for name, value in held.items()}
    garbage["loss_mask"][4:] = False
    garbage["targets"][4:] = -100
    chex.assert_trees_all_close(step(garbage, None), expected, rtol=1e-4, atol=1e-6)


def test_places_that_are_not_to_be_predicted_count_for_nothing():
    held = batch()
    expected = step(held, None)
    changed = {name: value.copy() for name, value in held.items()}
    changed["positions"][~held["predicted"]] = 0
    changed["targets"][~held["predicted"]] = -100
    chex.assert_trees_all_close(step(changed, None), expected, rtol=1e-5, atol=1e-6)


def test_batch_of_padding_alone_has_loss_and_gradient_zero():
    held = {name: np.zeros_like(value) for name, value in batch().items()}
    loss, metrics, gradient = step(held, None)
    assert loss == 0.0
    assert all(float(value) == 0.0 for pair in metrics.values() for value in pair)
    assert not any(leaf.any() for leaf in jax.tree.leaves(gradient))


def test_rows_without_a_masked_token_still_tell_what_follows():
    held = batch(predicted=0)
    loss, metrics, gradient = step(held, None)
    np.testing.assert_allclose(loss, metrics["nsp/loss"][0] / 4, rtol=1e-6)
    np.testing.assert_array_equal(metrics["mlm/loss"], [0.0, 0.0])
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))


@pytest.mark.parametrize("chunk", [1, 5, 100])
def test_a_loss_by_chunks_is_that_of_all_logits_at_once(chunk):
    found, expected = step(batch(), None, LossConfig(chunk_tokens=chunk)), step(batch(), None)
    chex.assert_trees_all_close(found, expected, rtol=1e-4, atol=1e-6)


def test_smoothing_and_z_loss_are_for_training_alone():
    config, held, key = LossConfig(label_smoothing=0.3, z_loss=0.2), batch(), jax.random.key(0)
    chex.assert_trees_all_equal(step(held, None, config), step(held, None))
    _, smoothed, _ = step(held, key, config)
    _, plain, _ = step(held, key)
    assert smoothed["mlm/loss"][0] > plain["mlm/loss"][0]
    chex.assert_trees_all_equal(smoothed["nsp/loss"], plain["nsp/loss"])
    np.testing.assert_allclose(
        smoothed["loss"][0] / 4, smoothed["mlm/loss"][0] / smoothed["mlm/loss"][1] + plain["nsp/loss"][0] / 4, rtol=1e-6
    )


def test_parts_of_a_batch_weigh_as_many_as_they_have_rows():
    held = batch(rows=6)
    parts = [{name: value[part] for name, value in held.items()} for part in (slice(0, 2), slice(2, 6))]
    losses, pairs = zip(*[step(part, None)[:2] for part in parts], strict=True)
    total = {name: sum(np.array(pair[name]) for pair in pairs) for name in pairs[0]}
    np.testing.assert_allclose(total["loss"], [2 * losses[0] + 4 * losses[1], 6], rtol=1e-6)
    _, whole, _ = step(held, None)
    for name in ("mlm/loss", "mlm/accuracy", "nsp/loss", "nsp/accuracy"):
        np.testing.assert_allclose(total[name], whole[name], rtol=1e-6)


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
        objective="masked_tokens",
        optimizer=OptimizerConfig(learning_rate=1e-2, warmup_steps=20),
        total_steps=300,
    )


def test_training_finds_the_structure_of_a_text(tmp_path):
    config = training_config(tmp_path)
    setup = set_up(config)
    batches, state = iter(setup.corpus.train), setup.state
    update = jax.jit(step_function(config, setup))
    for _ in range(config.total_steps):
        state, _ = update(state, next(batches))
    split = setup.corpus.split("validation").batches
    targets = np.concatenate([held["targets"][held["predicted"]] for held in split])
    shares = np.unique(targets, return_counts=True)[1] / len(targets)
    entropy = -(shares * np.log(shares)).sum()
    layout = make_parallel("jit", jax.devices()[:1])
    scores, _ = evaluate(compile_evaluation(setup.loss_fn, layout), layout.replicate(state.params), split, layout)
    assert len(targets) > 100
    assert entropy > 3.0  # ln 40 = 3.69, less what few samples take off
    assert scores["mlm/loss"] < entropy - 1.0  # who knows the topic needs ln 5 = 1.61
    assert scores["mlm/accuracy"] > 3 / (TOPICS * WORDS)
    np.testing.assert_allclose(scores["loss"], scores["mlm/loss"] + scores["nsp/loss"], rtol=0.1)


def config(**changes):
    plain = {"recipe": "r", "data": MaskedText(), "model": BertPretrainingConfig(), "objective": "masked_tokens"}
    return TrainConfig(**plain | changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"objective": "next_token"},
            r"masked_tokens is for BERT's .* got next_token for BertPretrainingConfig on MaskedText",
        ),
        ({"model": GPTConfig()}, r"got masked_tokens for GPTConfig on MaskedText"),
        ({"data": CharacterText()}, r"got masked_tokens for BertPretrainingConfig on CharacterText"),
        ({"sample_prompt": "The "}, r"sample_prompt must be None, got 'The '"),
        (
            {"loss": LossConfig(sampled_tokens=3)},
            r"loss\.sampled_tokens is for language models; masked_tokens scores few",
        ),
        ({"loss": LossConfig(task_weights=(1.0,))}, r"loss\.task_weights are for text_tasks"),
        (
            {"data": MaskedText(sequence_length=513)},
            r"sequence_length 513 exceeds the encoder's 512 positions.*--data\.sequence-length 512",
        ),
    ],
)
def test_config_that_cannot_be_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        config(**changes)


def test_a_pretrained_model_brings_its_positions():
    long, short = MaskedText(sequence_length=256), dataclasses.replace(ENCODER, max_positions=128)
    assert config(data=long, model=BertPretrainingConfig(pretrained="folder", encoder=short)).data == long
    with pytest.raises(ValueError, match=r"exceeds the encoder's 128 positions"):
        config(data=long, model=BertPretrainingConfig(encoder=short))
