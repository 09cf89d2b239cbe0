import dataclasses
import functools
import math
import types

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxnlp.corpus import Corpus, DataError, Split
from jaxnlp.models.gpt import GPTConfig
from jaxnlp.models.llama import LlamaConfig
from jaxnlp.models.recurrent_lm import RecurrentLMConfig
from jaxnlp.nn.dropout import Dropout
from jaxnlp.ops.losses import cross_entropy
from jaxnlp.tasks.language_model import LanguageModel, RecurrentLanguageModel
from jaxnlp.text.characters import CharacterVocabulary
from tests.processors import sized
from tests.random_parameters import random_parameters

VOCABULARY = 5


class Bigram(nn.Module):
    """Logits of the next token are a row of a table, with dropout."""

    @nn.compact
    def __call__(self, tokens, *, deterministic=True):
        return Dropout(0.5)(nn.Embed(VOCABULARY, VOCABULARY, name="table")(tokens), deterministic=deterministic)


PARAMS = {"table": {"embedding": np.random.default_rng(1).normal(size=(VOCABULARY, VOCABULARY)).astype(np.float32)}}


def batch(rows=3, length=4, seed=0):
    generator = np.random.default_rng(seed)
    tokens = generator.integers(VOCABULARY, size=(rows, length + 1)).astype(np.int32)
    mask = generator.random((rows, length)) < 0.7
    return {"tokens": tokens[:, :-1], "targets": tokens[:, 1:], "loss_mask": mask}


def corpus_of(counts=None, processor=None):
    return Corpus((), {"validation": Split()}, processor, "", "", counts)


@functools.cache
def compiled_loss(task, model, counts):
    corpus = None if counts is None else corpus_of(np.array(counts))
    return jax.jit(task.objective(model, corpus).loss)


def scored(task, held, key=None, *, model=None, params=PARAMS, carry=(), counts=None):
    """Scalar, metrics and carry."""
    loss, (metrics, carry) = compiled_loss(task, model or Bigram(), counts)(params, held, key, carry)
    return loss, metrics, carry


def test_loss_is_the_mean_negative_log_likelihood_of_the_scored_targets():
    table, held = np.array(PARAMS["table"]["embedding"], np.float64), batch()
    losses = []
    for row, column in np.argwhere(held["loss_mask"]):
        exponentials = [math.exp(x) for x in table[held["tokens"][row, column]]]
        losses.append(-math.log(exponentials[held["targets"][row, column]] / sum(exponentials)))
    loss, metrics, _ = scored(LanguageModel(), held)
    np.testing.assert_allclose(loss, np.mean(losses), rtol=1e-6)
    np.testing.assert_allclose(metrics["loss"], [np.sum(losses), len(losses)], rtol=1e-6)


def test_gradient_is_the_softmax_minus_the_target():
    table, held = np.array(PARAMS["table"]["embedding"], np.float64), batch()
    expected = np.zeros_like(table)
    positions = np.argwhere(held["loss_mask"])
    for row, column in positions:
        token, target = held["tokens"][row, column], held["targets"][row, column]
        expected[token] += np.exp(table[token]) / np.exp(table[token]).sum() - np.eye(VOCABULARY)[target]
    gradient = jax.grad(lambda p: scored(LanguageModel(), held, params=p)[0])(PARAMS)["table"]["embedding"]
    np.testing.assert_allclose(gradient, expected / len(positions), atol=1e-6)


def test_without_a_key_nothing_is_dropped():
    first, second = (scored(LanguageModel(), batch())[0] for _ in range(2))
    assert first == second
    dropped = [float(scored(LanguageModel(), batch(), jax.random.key(seed))[0]) for seed in (0, 0, 1)]
    assert dropped[0] == dropped[1]
    assert len({*dropped, float(first)}) == 3


@pytest.mark.parametrize("key", [None, 3])
def test_without_regularisers_the_logged_loss_is_the_minimised_one(key):
    key = None if key is None else jax.random.key(key)
    loss, metrics, _ = scored(LanguageModel(), batch(), key)
    assert metrics.keys() == {"loss"}
    total, count = metrics["loss"]
    np.testing.assert_array_equal(loss, total / count)


@pytest.mark.thorough
@pytest.mark.parametrize("garbage", [0, VOCABULARY - 1])
def test_padding_rows_change_neither_loss_nor_gradient(garbage):
    held = batch()
    padded = {
        name: np.concatenate([x, np.full((2, *x.shape[1:]), False if name == "loss_mask" else garbage, x.dtype)])
        for name, x in held.items()
    }
    step = jax.jit(jax.value_and_grad(LanguageModel().objective(Bigram(), None).loss, has_aux=True))
    for key in (None, jax.random.key(0)):
        chex.assert_trees_all_close(step(PARAMS, held, key, ()), step(PARAMS, padded, key, ()), rtol=1e-6)


def test_a_batch_of_only_padding_has_zero_loss_and_gradient():
    held = batch() | {"loss_mask": np.zeros((3, 4), bool)}
    loss_fn = LanguageModel().objective(Bigram(), None).loss
    (loss, (metrics, _)), gradient = jax.jit(jax.value_and_grad(loss_fn, has_aux=True))(PARAMS, held, None, ())
    assert (loss, *metrics["loss"]) == (0.0, 0.0, 0.0)
    chex.assert_trees_all_equal(gradient, jax.tree.map(np.zeros_like, PARAMS))


def test_sums_of_two_halves_are_the_sum_of_the_whole():
    held = batch(rows=4)
    halves = [{name: x[part] for name, x in held.items()} for part in (slice(0, 1), slice(1, 4))]
    parts = [np.array(scored(LanguageModel(), half)[1]["loss"]) for half in halves]
    np.testing.assert_allclose(sum(parts), scored(LanguageModel(), held)[1]["loss"], rtol=1e-6)


GPT = GPTConfig(num_layers=1, num_heads=2, width=8, context_length=4, embedding_dropout_rate=0.3)


def loss_metrics_and_gradient(model, params, task, key):
    loss_fn = task.objective(model, None).loss
    (loss, (metrics, _)), gradient = jax.jit(jax.value_and_grad(loss_fn, has_aux=True))(params, batch(), key, ())
    return loss, metrics, gradient


@pytest.mark.thorough
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("smoothing", [{}, {"label_smoothing": 0.2, "z_loss": 0.1}])
def test_a_loss_by_chunks_is_that_of_all_logits_at_once(training, tied, smoothing):
    model = dataclasses.replace(GPT, tie_embeddings=tied).build(sized(VOCABULARY))
    params = random_parameters(model, np.zeros((1, 1), np.int32))
    key = jax.random.key(1) if training else None
    found = loss_metrics_and_gradient(model, params, LanguageModel(chunk_tokens=5, **smoothing), key)
    expected = loss_metrics_and_gradient(model, params, LanguageModel(**smoothing), key)
    chex.assert_trees_all_close(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.thorough
@pytest.mark.parametrize("chunk_tokens", [None, 5])
def test_training_logs_the_plain_loss_apart_from_what_it_minimises(chunk_tokens):
    """Both were one metric once, drawn on one axis with the plain loss of validation."""
    held, added = batch(), {"label_smoothing": 0.3, "z_loss": 0.2}
    model = dataclasses.replace(GPT, embedding_dropout_rate=0.0).build(sized(VOCABULARY))
    params = random_parameters(model, np.zeros((1, 1), np.int32))
    task = LanguageModel(chunk_tokens=chunk_tokens, **added)
    loss, metrics, _ = scored(task, held, jax.random.key(0), model=model, params=params)
    logits = jax.jit(model.apply)({"params": params}, held["tokens"])
    smoothed, exact = (jax.jit(functools.partial(cross_entropy, **options)) for options in (added, {}))
    total, _, count = jax.device_get(smoothed(logits, held["targets"], held["loss_mask"]))
    plain = jax.device_get(exact(logits, held["targets"], held["loss_mask"])).objective
    np.testing.assert_allclose(metrics["objective"], (total, count), rtol=1e-5)
    np.testing.assert_allclose(metrics["loss"], (plain, count), rtol=1e-5)
    np.testing.assert_allclose(loss, total / count, rtol=1e-5)
    assert abs(total - plain) > 0.1
    declared = task.metrics(types.SimpleNamespace(unit="characters"), Split())
    assert declared.keys() == metrics.keys() | {"perplexity"}


def test_evaluation_reports_the_plain_loss_only():
    task = LanguageModel(label_smoothing=0.3, z_loss=0.2)
    chex.assert_trees_all_equal(scored(task, batch()), scored(LanguageModel(), batch()))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"label_smoothing": 1.0}, r"task.label_smoothing must be in \[0, 1\), got 1.0"),
        ({"label_smoothing": math.nan}, "task.label_smoothing"),
        ({"z_loss": -0.1}, "task.z_loss must be finite and not negative, got -0.1"),
        ({"z_loss": math.inf}, "task.z_loss"),
        ({"chunk_tokens": 0}, "task.chunk_tokens must be at least 1, got 0"),
        ({"num_sampled": 0}, "task.num_sampled must be at least 1, got 0"),
        ({"num_frequent": -1}, "task.num_frequent must be at least 0, got -1"),
        ({"num_sampled": 5, "z_loss": 0.1}, "task.num_sampled estimates the plain cross-entropy"),
        ({"sample_tokens": 0}, "task.sample_tokens must be at least 1, got 0"),
        ({"num_frequent": 7}, r"task.num_frequent.*task.num_sampled"),
    ],
)
def test_fields_that_cannot_be_are_refused_with_their_value(changes, message):
    with pytest.raises(ValueError, match=message):
        LanguageModel(**changes)


def test_samples_of_a_recipe_are_turned_off_by_one_field():
    """--task.sample-prompt None was refused for recipes with a sample length of their own."""
    recipe = LanguageModel(sample_prompt="The ", sample_tokens=300)
    assert dataclasses.replace(recipe, sample_prompt=None).sample_prompt is None


@pytest.mark.parametrize("name", ["activation_regularization", "temporal_activation_regularization"])
def test_negative_regularisers_are_refused(name):
    with pytest.raises(ValueError, match=f"task.{name} must be finite and not negative, got -1.0"):
        RecurrentLanguageModel(**{name: -1.0})


RECURRENT_CONFIG = RecurrentLMConfig(embedding_width=3, widths=(4,), output_dropout_rate=0.5)
RECURRENT = RECURRENT_CONFIG.build(sized(VOCABULARY))
RECURRENT_PARAMS = random_parameters(RECURRENT, np.zeros((1, 1), np.int32))


def scored_recurrent(held, key=None, carry=(), **fields):
    task = RecurrentLanguageModel(**fields)
    return scored(task, held, key, model=RECURRENT, params=RECURRENT_PARAMS, carry=carry)


@pytest.mark.thorough
def test_rows_continue_where_the_previous_batch_ended_unless_they_are_reset():
    whole = batch(length=8)
    halves = [{name: array[:, part] for name, array in whole.items()} for part in (slice(4), slice(4, 8))]
    empty = RecurrentLanguageModel().objective(RECURRENT, None).empty_carry(3)
    carry, sums = empty, np.zeros(2)
    for number, half in enumerate(halves):
        _, metrics, carry = scored_recurrent(half | {"reset": np.full(3, number == 0)}, carry=carry)
        sums += metrics["loss"]
    _, expected, untouched = scored_recurrent(whole)
    np.testing.assert_allclose(sums, expected["loss"], rtol=1e-6)
    assert untouched == ()
    _, _, found = scored_recurrent(halves[1] | {"reset": np.array([False, True, False])}, carry=carry)
    _, _, fresh = scored_recurrent(halves[1] | {"reset": np.full(3, True)}, carry=empty)
    np.testing.assert_allclose(found[0][0][0][1], fresh[0][0][0][1], rtol=1e-6)
    assert (np.asarray(found[0][0][0])[0] != np.asarray(fresh[0][0][0])[0]).any()


def test_no_gradient_flows_into_the_carried_states():
    objective = RecurrentLanguageModel().objective(RECURRENT, None)
    held = batch() | {"reset": np.full(3, False)}

    def final_state(params):
        return sum(map(jnp.sum, jax.tree.leaves(objective.loss(params, held, None, objective.empty_carry(3))[1][1])))

    gradient = jax.device_get(jax.jit(jax.grad(final_state))(RECURRENT_PARAMS))
    assert not any(leaf.any() for leaf in jax.tree.leaves(gradient))


@pytest.mark.thorough
def test_activation_regularisers_are_mean_squares_of_dropped_outputs_and_of_changes():
    held, key = batch(), jax.random.key(5)
    plain, plain_metrics, _ = scored_recurrent(held, key)
    weights = {"activation_regularization": 2.0, "temporal_activation_regularization": 3.0}
    loss, metrics, _ = scored_recurrent(held, key, **weights)
    apply = jax.jit(functools.partial(RECURRENT.apply, deterministic=False, method="read"))
    read = apply({"params": RECURRENT_PARAMS}, held["tokens"], rngs={"dropout": key})
    mask, dropped, outputs = (np.asarray(a) for a in (held["loss_mask"], read.dropped, read.outputs))
    changes = [
        np.square(outputs[row, t + 1] - outputs[row, t]).mean()
        for row in range(3)
        for t in range(3)
        if mask[row, t + 1]
    ]
    expected = 2.0 * np.square(dropped[mask]).mean() + 3.0 * np.mean(changes)
    np.testing.assert_allclose(loss - plain, expected, rtol=1e-4)
    np.testing.assert_allclose(metrics["objective"][0] / metrics["objective"][1], loss, rtol=1e-6)
    chex.assert_trees_all_close(metrics["loss"], plain_metrics["loss"], rtol=1e-6)


def test_evaluation_of_a_regularised_recurrent_model_reports_the_plain_loss_only():
    fields = {"activation_regularization": 2.0, "temporal_activation_regularization": 3.0, "label_smoothing": 0.1}
    chex.assert_trees_all_equal(scored_recurrent(batch(), **fields), scored_recurrent(batch()))


COUNTS = np.array([4, 0, 9, 7, 0])


@pytest.mark.thorough
@pytest.mark.parametrize("kind", [RecurrentLanguageModel, LanguageModel])
def test_sampled_training_is_exact_where_one_word_is_left_to_draw_and_evaluation_is_always_exact(kind):
    config = GPTConfig(num_layers=1, num_heads=1, width=4, context_length=4)
    model = RECURRENT if kind is RecurrentLanguageModel else config.build(sized(VOCABULARY))
    params = random_parameters(model, np.zeros((1, 1), np.int32))
    key = jax.random.key(5)

    def loss_of(key, **fields):
        return float(scored(kind(**fields), batch(), key, model=model, params=params, counts=tuple(COUNTS))[0])

    np.testing.assert_allclose(loss_of(key, num_sampled=3, num_frequent=4), loss_of(key), rtol=1e-6)
    np.testing.assert_allclose(loss_of(key, num_sampled=1, num_frequent=5), loss_of(key), rtol=1e-6)
    # Tokens 1 and 4 never occur, and one of them is drawn.
    assert loss_of(key, num_sampled=1, num_frequent=3) != pytest.approx(loss_of(key), rel=1e-4)
    np.testing.assert_allclose(loss_of(None, num_sampled=1, num_frequent=3), loss_of(None), rtol=1e-6)


def test_sampled_training_needs_token_counts_and_evaluation_does_not():
    fields = {"num_sampled": 1, "num_frequent": 3}
    scored_recurrent(batch(), **fields)
    with pytest.raises(ValueError, match=r"task\.num_sampled needs the token counts of a corpus"):
        scored_recurrent(batch(), jax.random.key(0), **fields)
    with pytest.raises(DataError, match=r"task\.num_sampled needs token counts"):
        RecurrentLanguageModel(**fields).check_corpus(RECURRENT_CONFIG, corpus_of())


def test_a_model_without_states_returns_the_carry_that_it_was_given():
    objective = LanguageModel().objective(Bigram(), None)
    assert objective.empty_carry(7) == ()
    assert scored(LanguageModel(), batch(), carry=())[2] == ()
    assert objective.progress == "loss"


def facts(parts=(), stateful=False):
    return types.SimpleNamespace(max_length=4, parts=parts, joint=False, stateful=stateful)


def test_data_that_continues_from_batch_to_batch_needs_the_task_and_the_model_that_carry_states():
    RecurrentLanguageModel().check(RECURRENT_CONFIG, facts(stateful=True))
    with pytest.raises(ValueError, match="use the task RecurrentLanguageModel with a recurrent model"):
        LanguageModel().check(RECURRENT_CONFIG, facts(stateful=True))
    for option in ({"chunk_tokens": 8}, {"num_sampled": 2}):
        with pytest.raises(ValueError, match="of a recurrent model need the task RecurrentLanguageModel"):
            LanguageModel(**option).check(RECURRENT_CONFIG, facts())
    with pytest.raises(ValueError, match="RecurrentLanguageModel needs a recurrent model, got GPTConfig"):
        RecurrentLanguageModel().check(GPTConfig(), facts())


def test_a_limit_of_the_logits_needs_all_of_them():
    LanguageModel().check(LlamaConfig(logit_cap=15.0), facts())
    for option in ({"chunk_tokens": 8}, {"num_sampled": 2}):
        with pytest.raises(ValueError, match=r"model\.logit_cap needs all logits at once"):
            LanguageModel(**option).check(LlamaConfig(logit_cap=15.0), facts())


def test_data_of_several_parts_is_refused():
    LanguageModel().check(GPT, facts())
    with pytest.raises(ValueError, match=r"needs texts without labels, but the data has the parts \('sst',\)"):
        LanguageModel().check(GPT, facts(parts=("sst",)))


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ("", "'': expected 1 to 4 tokens, got 0. Give another prompt, or None for no samples"),
        ("tetet", "'tetet': expected 1 to 4 tokens, got 5. Give another prompt, or None for no samples"),
    ],
)
def test_a_prompt_that_cannot_be_continued_is_refused_before_the_first_step(prompt, message):
    corpus = corpus_of(processor=CharacterVocabulary.of("the "))
    LanguageModel(sample_prompt="the").check_corpus(GPT, corpus)
    with pytest.raises(DataError, match=f"^--task.sample-prompt {message}"):
        LanguageModel(sample_prompt=prompt).check_corpus(GPT, corpus)
