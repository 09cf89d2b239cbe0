import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxnlp.corpus import DataError, Split
from jaxnlp.decoding.rows import mesh_of
from jaxnlp.ops.devices import compile_for, target_platform
from jaxnlp.tasks import Objective, Trained
from train.evaluation.scoring import SplitScoring
from train.parallel import make_parallel
from train.run.init_from import begin
from train.run.setup import set_up


def surprises(params, tokens):
    """Losses of each token except the first under the tests' bigram model, without dropout; in NumPy."""
    tokens = np.asarray(tokens)
    embedding, head = (
        np.asarray(params[name][leaf], np.float64) for name, leaf in [("tokens", "embedding"), ("head", "kernel")]
    )
    logits = embedding[tokens[:-1]] @ head + np.asarray(params["head"]["bias"], np.float64)
    return np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(len(logits)), tokens[1:]]


def scoring_of(config, mode="jit", split="validation", devices=None):
    """The scoring of a model before its first step, its set-up and its parameters on one device."""
    setup, layout = set_up(begin(config)), make_parallel(mode, devices)
    state = layout.initialise(setup.initial_state, setup.given)
    trained = Trained(config.task, setup.model, state.params, setup.corpus.processor)
    scoring = SplitScoring(
        trained,
        setup.corpus.split(split),
        split,
        training=None,
        objective=setup.objective,
        layout=layout,
        kept={},
    )
    return scoring, setup, jax.device_get(layout.fetch(state.params))


@pytest.mark.parametrize("batch_size", [4, 5])
@pytest.mark.parametrize("mode", ["jit", "pmap"])
def test_score_is_the_mean_over_the_whole_split_whatever_the_batches_and_devices(tiny_config, mode, batch_size):
    scoring, setup, params = scoring_of(tiny_config(**{"data.evaluation_batch_size": batch_size}), mode)
    batches, vocabulary = setup.corpus.split("validation").batches, setup.corpus.processor
    text = vocabulary.decode(itertools.chain.from_iterable(b["targets"][b["loss_mask"]] for b in batches))
    assert len(text) == 89
    expected = surprises(params, [next(iter(batches))["tokens"][0, 0], *vocabulary.encode(text)])
    found = scoring.sums()["loss"]
    assert found.count == 89
    np.testing.assert_allclose(found.value, expected.mean(), rtol=1e-5)


def test_score_is_the_same_each_time(tiny_config):
    scoring, _, _ = scoring_of(tiny_config(), split="train", devices=jax.devices()[:1])
    first, second = scoring.sums(), scoring.sums()
    assert first == second
    assert first["loss"].count == 809


def test_a_program_is_traced_once_over_many_evaluations(tiny_config):
    scoring, _, _ = scoring_of(tiny_config(), devices=jax.devices()[:1])
    made = [scoring.once(lambda: object()) for _ in range(2)]
    assert made[0] is not made[1]  # another function
    same = [scoring.once(complex, 1.0, 2.0) for _ in range(2)]
    assert same[0] is same[1]
    assert scoring.once(complex, 2.0, 1.0) == 2 + 1j
    traces = []

    def outputs(params, batch):
        traces.append(1)
        return batch["tokens"].sum(axis=1)

    for _ in range(2):
        scoring.outputs(outputs)
    assert len(traces) == 1


def rows_scoring(batches, rows, mode="jit"):
    layout = make_parallel(mode)
    trained = Trained(None, None, layout.place(jnp.float32(1.0)), None)
    split = Split(tuple(batches), examples=tuple(range(5)), rows=rows)
    objective = Objective(lambda *_: None)
    return SplitScoring(trained, split, "x", training=None, objective=objective, layout=layout, kept={})


def padded(values):
    """A batch of four rows, the missing ones padding."""
    x = np.zeros(4, np.float32)
    x[: len(values)] = values
    return {"x": x, "loss_mask": np.arange(4) < len(values)}


@pytest.mark.parametrize("mode", ["jit", "pmap"])
def test_outputs_are_one_row_an_example_in_their_order_without_padding(mode):
    scoring = rows_scoring([padded([30, 10, 40, 0]), padded([20])], np.array([3, 1, 4, 0, 2]), mode)
    found = scoring.outputs(lambda params, batch: {"twice": 2 * batch["x"] * params})
    np.testing.assert_array_equal(found["twice"], [0, 20, 40, 60, 80])


@pytest.mark.parametrize("rows", [np.array([3, 1, 4, 0, 2]), None], ids=["in another order", "in order"])
def test_an_example_without_positions_to_score_is_refused_in_words(rows):
    scoring = rows_scoring([padded([30, 10, 40]), padded([20])], rows)
    with pytest.raises(DataError, match="x has 5 examples, but only 4 rows with a True in loss_mask"):
        scoring.outputs(lambda params, batch: batch["x"])


@pytest.mark.parametrize("mode", ["jit", "pmap"])
def test_a_fold_carries_each_row_from_batch_to_batch(mode):
    scoring = rows_scoring([padded([1, 2, 5, 7]), padded([3, 4])], None, mode)

    def step(params, batch, carry):
        totals = carry + params * batch["x"]
        return {"running": (totals.sum(), batch["loss_mask"].sum())}, totals

    found = scoring.fold(step, jnp.zeros)["running"]
    assert (found.value, found.count) == ((15.0 + 22.0) / 6, 6)


def test_a_fold_is_traced_for_the_platform_of_the_parameters():
    """Not for that of the default device."""
    scoring, traced = rows_scoring([padded([1])], None), []

    def step(params, batch, carry):
        traced.append(target_platform())
        return {"rows": (batch["x"].sum(), batch["loss_mask"].sum())}, carry

    with compile_for("tpu"):
        scoring.fold(step, lambda rows: ())
    assert set(traced) == {"cpu"}


@pytest.mark.parametrize("mode", ["jit", "pmap"])
def test_parameters_for_a_decoder_are_whole_on_each_device(mode):
    scoring = rows_scoring([], None, mode)
    params = scoring.whole_params()
    assert params.is_fully_replicated
    assert params.devices() == set(jax.devices())
    assert mesh_of(params) is not None


def test_a_split_without_batches_has_no_sums_and_no_outputs():
    scoring = rows_scoring([], None)
    assert scoring.sums() == {}
    with pytest.raises(DataError, match="x has no batches"):
        scoring.outputs(lambda params, batch: batch)


def test_a_part_is_scored_under_its_own_name():
    scoring = rows_scoring([], None)
    part = Split((padded([1, 2]),), examples=(0, 1))
    scoring.split = Split(parts={"sst": part})
    found = scoring.part("sst")
    assert (found.split, found.split_name) == (part, "sst/x")


def test_programs_are_compiled_ahead_only_in_training():
    with pytest.raises(ValueError, match="programs are compiled ahead only in training"):
        rows_scoring([padded([1])], None).compile_outputs(lambda params, batch: batch)
