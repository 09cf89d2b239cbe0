import gc
import math
import re
import shutil
import signal

import chex
import jax
import numpy as np
import pytest

from data import DataError
from jaxnlp.saving.checkpoint_reading import RunError, checkpoint_steps, read_record
from jaxnlp.saving.serialization import ConfigError
from jaxnlp.tasks import MetricKind
from jaxnlp.tasks.language_model import LanguageModel
from tests.train.loop_helpers import arrays, prepared, restored, rows
from train import loop
from train.compile_ahead import AheadCompiler
from train.config import update
from train.loop import fit
from train.report import read_sections
from train.run import folder as run_folder
from train.run.checkpoint_writing import Checkpoints
from train.run.folder import TYPED_MODEL_FILE, RunMismatchError
from train.run.init_from import begin
from train.run.progress import NonFiniteError
from train.run.setup import set_up


def files(workdir):
    return {str(path.relative_to(workdir)): path.read_bytes() for path in workdir.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def straight(tiny_config, tmp_path_factory, quiet):
    """A run from start to end: its config, folder and last state."""
    config = tiny_config(accumulation_steps=2, ema_decay=0.9, log_every_steps=1)
    workdir = tmp_path_factory.mktemp("straight")
    return config, workdir, arrays(fit(config, workdir, console=quiet).state)


@pytest.mark.thorough
@pytest.mark.parametrize("stops", [[4], [3, 11]], ids=str)
def test_stopped_and_continued_run_is_the_straight_run_bit_for_bit(straight, tmp_path, quick_fit, stop_at, stops):
    config, straight_workdir, expected = straight
    for step in stops:
        with stop_at(step):
            outcome = quick_fit(config, tmp_path)
        assert (outcome.stopped_by, int(outcome.state.step)) == ("SIGTERM", step)
        assert checkpoint_steps(tmp_path)[-1] == step
    outcome = quick_fit(config, tmp_path)
    assert outcome.stopped_by is None
    chex.assert_trees_all_equal(arrays(outcome.state), expected)
    assert rows(tmp_path) == rows(straight_workdir)


@pytest.mark.thorough
def test_a_signal_while_a_step_is_logged_stops_the_run_after_the_next_step_which_is_saved(
    tiny_config, tmp_path, quick_fit, monkeypatch
):
    """It stopped the run at once, with the words that everything was saved, and nothing was."""
    log = loop._log

    def interrupted(writer, step, *rest):
        log(writer, step, *rest)
        if step == 1:
            signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(loop, "_log", interrupted)
    outcome = quick_fit(tiny_config(log_every_steps=1, checkpoint_every_steps=12), tmp_path)
    assert (outcome.stopped_by, int(outcome.state.step)) == ("SIGTERM", 2)
    assert checkpoint_steps(tmp_path) == [2]


@pytest.mark.thorough
def test_a_stopped_run_has_saved_before_it_waits_for_programs_that_are_still_compiled(
    tiny_config, tmp_path, quick_fit, stop_at, monkeypatch
):
    ended = []

    def exit_of(context):
        leave = context.__exit__

        def left(self, *error):
            ended.append(context)
            return leave(self, *error)

        return left

    for context in (AheadCompiler, Checkpoints):
        monkeypatch.setattr(context, "__exit__", exit_of(context))
    with stop_at(1):
        quick_fit(tiny_config(), tmp_path)
    assert ended == [Checkpoints, AheadCompiler]


def test_crashed_and_continued_run_is_the_straight_run_bit_for_bit(straight, tmp_path, quick_fit, after_step):
    config, straight_workdir, expected = straight

    def crash():
        raise MemoryError

    for step in (2, 8):
        with after_step(step, crash), pytest.raises(MemoryError):
            quick_fit(config, tmp_path)
        assert max(checkpoint_steps(tmp_path), default=0) == (step - 1) // 3 * 3
    chex.assert_trees_all_equal(arrays(quick_fit(config, tmp_path).state), expected)
    assert rows(tmp_path) == rows(straight_workdir)


@pytest.mark.thorough
def test_seed_decides_parameters_dropout_and_data_order(tiny_config):
    first, second = (prepared(tiny_config(seed=seed)) for seed in (0, 1))
    assert not np.array_equal(*(state.params["head"]["kernel"] for _, state in (first, second)))
    assert not np.array_equal(*(jax.random.key_data(state.key) for _, state in (first, second)))
    assert not np.array_equal(*(next(iter(setup.corpus.train))["tokens"] for setup, _ in (first, second)))


def test_training_lowers_the_loss(straight):
    losses = [row["loss"] for row in rows(straight[1]) if row["split"] == "validation"]
    assert losses[-1] < losses[0]


def test_run_logs_evaluates_and_saves_when_it_should(tiny_config, tmp_path, quick_fit):
    config = tiny_config(
        total_steps=14, log_every_steps=4, evaluate_every_steps=6, checkpoint_every_steps=5, keep_checkpoints=9
    )
    quick_fit(config, tmp_path)
    found = rows(tmp_path)
    assert [row["step"] for row in found if row["split"] == "validation"] == [6, 12, 14]
    assert [row["step"] for row in found if row["split"] == "train"] == [4, 5, 6, 8, 10, 12, 14]
    assert checkpoint_steps(tmp_path) == [5, 6, 10, 12, 14]


def test_learning_rate_in_the_log_is_the_schedules(straight):
    _, workdir, _ = straight
    found = [row["learning_rate"] for row in rows(workdir) if row["split"] == "train"]
    expected = [0.03 * (0.1 + 0.9 * (1 + math.cos(math.pi * step / 12)) / 2) for step in range(1, 13)]
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.thorough
def test_evaluation_is_of_the_moving_average(straight):
    config, workdir, state = straight
    setup = set_up(begin(config))
    batches = setup.corpus.split("validation").batches
    sums = [setup.objective.loss(state.ema, batch, None, ())[1][0]["loss"] for batch in batches]
    loss, count = np.sum(np.array(sums), axis=0)
    assert rows(workdir)[-1]["split"] == "validation"
    np.testing.assert_allclose(rows(workdir)[-1]["loss"], loss / count, rtol=1e-5)


@pytest.mark.thorough
def test_finished_run_called_again_changes_nothing(straight, quiet):
    config, workdir, expected = straight
    before = files(workdir)
    outcome = fit(config, workdir, console=quiet)
    assert outcome.stopped_by is None
    chex.assert_trees_all_equal(arrays(outcome.state), expected)
    assert files(workdir) == before


def test_checkpoint_holds_the_state_and_the_position_in_the_data(straight):
    config, workdir, expected = straight
    found = restored(config, workdir)
    chex.assert_trees_all_equal(arrays(found.progress.state), expected)
    batches = iter(set_up(begin(config)).corpus.train)
    for _ in range(config.total_steps):
        next(batches)
    assert found.data_state == batches.get_state()
    loss = rows(workdir)[-1]["loss"]
    assert read_record(workdir, 12).metrics == {"score": -loss, "loss": loss}


def test_run_ends_with_a_report_and_its_plots(straight):
    _, workdir, _ = straight
    assert "</html>" in (workdir / "report.html").read_text()
    assert {path.name for path in (workdir / "plots").iterdir()} == {
        "loss.svg",
        "perplexity.svg",
        "gradient_norm.svg",
        "learning_rate.svg",
        "throughput.svg",
    }


@pytest.mark.thorough
@pytest.mark.parametrize(("given", "expected"), [("the", "the"), ("Q", " ")], ids=["known", "unknown"])
def test_samples_continue_the_prompt_at_each_evaluation(tiny_config, tmp_path, quick_fit, given, expected):
    config = tiny_config(
        total_steps=5, evaluate_every_steps=2, task=LanguageModel(sample_prompt=given, sample_tokens=9)
    )
    quick_fit(config, tmp_path)
    sections = read_sections(tmp_path / "sections.jsonl")
    assert [(each.step, each.name, each.keep) for each in sections] == [(n, "Samples", "all") for n in (2, 4, 5)]
    for section in sections:
        (((prompt, prompt_marked), (rest, rest_marked)),) = section.content.paragraphs
        assert (prompt, prompt_marked, len(rest), rest_marked) == (expected, True, 9, False)


@pytest.mark.parametrize("prompt", ["", "the tide eats"], ids=["empty", "too long"])
def test_prompt_that_cannot_be_continued_is_refused_before_the_first_step(tiny_config, tmp_path, quick_fit, prompt):
    with pytest.raises(DataError, match=r"--task\.sample-prompt"):
        quick_fit(tiny_config(task=LanguageModel(sample_prompt=prompt)), tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.thorough
def test_console_prints_the_announcement_as_plain_lines(tiny_config, tmp_path, quick_fit, stop_at, loud):
    with stop_at(2):
        quick_fit(tiny_config(), tmp_path, loud)
    quick_fit(tiny_config(), tmp_path, loud)
    printed = loud.file.getvalue()
    assert "text_file: 900 characters, 11 distinct; 810 for training, 90 for validation\n" in printed
    assert printed.count("continuing from") == printed.count("continuing from step 2 of 12\n") == 1


@pytest.mark.thorough
def test_skip_mode_counts_the_updates_it_skips_and_reaches_the_end(tiny_config, tmp_path, quick_fit, poison):
    config = tiny_config(nonfinite="skip", log_every_steps=1)
    bad = poison(config)
    assert 2 <= len(bad) < config.total_steps
    state = quick_fit(config, tmp_path).state
    assert (int(state.step), int(state.skipped_updates), int(state.first_skipped_step)) == (12, len(bad), bad[0])
    chex.assert_tree_all_finite((state.params, state.opt_state))
    found = {row["step"]: row for row in rows(tmp_path) if row["split"] == "train"}
    assert [step for step, row in found.items() if not math.isfinite(row["loss"])] == bad
    assert [found[step]["skipped_updates"] for step in sorted(found)] == [
        sum(number <= step for number in bad) for step in range(1, 13)
    ]


@pytest.mark.thorough
@pytest.mark.parametrize(("seed", "log_every_steps"), [(0, 1), (1, 100)])
def test_stop_mode_names_the_first_bad_step_and_the_last_good_checkpoint(
    tiny_config, tmp_path, quick_fit, poison, seed, log_every_steps
):
    config = tiny_config(seed=seed, checkpoint_every_steps=2, evaluate_every_steps=100, log_every_steps=log_every_steps)
    bad = poison(config)[0]
    good = (bad - 1) // 2 * 2
    known = f"the last good checkpoint is step {good}" if good else "there is no checkpoint before it"
    with pytest.raises(NonFiniteError, match=f"not finite at step {bad}; {known} in {re.escape(str(tmp_path))}"):
        quick_fit(config, tmp_path)
    assert max(checkpoint_steps(tmp_path), default=0) == good


@pytest.mark.sweep(1)
@pytest.mark.parametrize("learning_rate", [1e30, 1e12])
def test_too_high_learning_rate_stops_each_start_with_an_error_and_leaves_only_finite_checkpoints(
    tiny_config, tmp_path, quick_fit, learning_rate
):
    config = tiny_config(checkpoint_every_steps=1, log_every_steps=1, **{"optimizer.learning_rate": learning_rate})
    messages = []
    for _ in range(2):
        with pytest.raises(NonFiniteError, match=r"--optimizer\.learning-rate") as caught:
            quick_fit(config, tmp_path)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]
    good = int(re.search(r"not finite at step (\d+);", messages[0])[1]) - 1
    assert max(checkpoint_steps(tmp_path), default=0) == good
    assert (f"the last good checkpoint is step {good}" if good else "no checkpoint before it") in messages[0]
    if good:
        found = restored(config, tmp_path)
        chex.assert_tree_all_finite((found.progress.state.params, found.progress.state.opt_state))


@pytest.mark.thorough
def test_a_report_that_fails_does_not_hide_how_the_run_ended(tiny_config, tmp_path, poison, quiet, monkeypatch, caplog):
    def broken(workdir):
        raise OSError("disk full")

    config = tiny_config(log_every_steps=1, evaluate_every_steps=1000)
    poison(config)
    monkeypatch.setattr(loop, "write_report", broken)
    with pytest.raises(NonFiniteError):
        fit(config, tmp_path, console=quiet)
    assert "no report: disk full" in caplog.text


def test_only_the_first_process_writes_the_report_and_the_config_as_it_was_given(tiny_config, tmp_path, monkeypatch):
    setup = set_up(begin(tiny_config()))
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "split": "validation", "loss": 1.0}\n')
    reported = []
    monkeypatch.setattr(loop, "write_report", reported.append)

    def write_all():
        run_folder.create(tmp_path, setup.spec, typed_model={"width": 8})
        loop._write_report(tmp_path)

    monkeypatch.setattr(jax, "process_index", lambda: 1)
    write_all()
    assert (files(tmp_path).keys(), reported) == ({"metrics.jsonl"}, [])
    monkeypatch.setattr(jax, "process_index", lambda: 0)
    write_all()
    written = {"metrics.jsonl", "config.json", "processor.json", TYPED_MODEL_FILE}
    assert (files(tmp_path).keys(), reported) == (written, [tmp_path])


@pytest.mark.thorough
@pytest.mark.parametrize("nonfinite", ["skip", "stop"])
def test_parameters_that_overflow_are_never_saved(tiny_config, tmp_path, quick_fit, nonfinite):
    absurd = {"optimizer.learning_rate": 3e38, "optimizer.weight_decay": 1e3}
    config = tiny_config(checkpoint_every_steps=1, nonfinite=nonfinite, **absurd)
    for _ in range(2):
        with pytest.raises(NonFiniteError, match="parameters are not finite after step 1; there is no checkpoint"):
            quick_fit(config, tmp_path)
    assert not checkpoint_steps(tmp_path)


def test_another_config_on_the_same_folder_is_refused_before_the_data_is_read_or_anything_changes(straight, quick_fit):
    config, workdir, _ = straight
    before = files(workdir)
    with pytest.raises(RunMismatchError, match=r"seed: 0 -> 5"):
        quick_fit(update(config, seed=5, **{"data.path": "absent.txt"}), workdir)
    assert files(workdir) == before


def test_too_short_text_is_refused_and_leaves_no_folder(tiny_config, tmp_path, quick_fit):
    text = tmp_path / "short.txt"
    text.write_text("abc")
    with pytest.raises(DataError, match="has 2 characters, but one window needs 9"):
        quick_fit(tiny_config(**{"data.path": str(text)}), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_parameters_are_counted(tiny_config):
    assert prepared(tiny_config())[0].num_parameters == 11 * 8 + 8 * 11 + 11


@pytest.fixture(scope="module")
def beginning(tiny_config, tiny_gpt, tmp_path_factory, quick_fit):
    """A run of three steps to begin with: its folder and last state."""
    workdir = tmp_path_factory.mktemp("beginning") / "run"
    state = quick_fit(tiny_config(model=tiny_gpt, total_steps=3, ema_decay=0.9), workdir).state
    return workdir, arrays(state)


@pytest.mark.thorough
def test_a_run_begins_with_the_newest_parameters_of_another(beginning, tiny_config, tiny_gpt):
    workdir, state = beginning
    config = tiny_config(model=tiny_gpt, ema_decay=0.9, seed=5)
    begun, fresh = (prepared(each)[1] for each in (update(config, init_from=str(workdir)), config))
    assert int(begun.step) == 0
    # What evaluation uses: the moving average, where the run keeps one.
    chex.assert_trees_all_equal(begun.params, state.ema)
    chex.assert_trees_all_equal(begun.ema, state.ema)
    chex.assert_trees_all_equal(begun.opt_state, fresh.opt_state)
    assert (begun.params["head"]["kernel"] != fresh.params["head"]["kernel"]).any()


@pytest.mark.thorough
def test_a_run_that_continues_no_longer_needs_the_one_it_began_with(
    tiny_config, quick_fit, stop_at, tmp_path, monkeypatch
):
    monkeypatch.setenv("JAXNLP_TRUST", "tests")  # the model is a class of the tests
    beginning = tmp_path / "beginning"
    quick_fit(tiny_config(total_steps=1), beginning)
    config = tiny_config(init_from=str(beginning), total_steps=6)
    with stop_at(3):
        quick_fit(config, tmp_path / "run")
    shutil.rmtree(beginning)
    assert int(quick_fit(config, tmp_path / "run").state.step) == 6
    with pytest.raises(RunError, match=r"--init-from: there is no folder .*beginning"):
        quick_fit(config, tmp_path / "another")


@pytest.mark.thorough
def test_beginning_with_another_model_or_alphabet_is_refused_with_what_differs(
    beginning, tiny_config, tiny_gpt, tmp_path
):
    config = tiny_config(model=tiny_gpt, init_from=str(beginning[0]))
    with pytest.raises(ConfigError, match=r"sets these fields of the model; remove them:\n  model\.width: 4 -> 8$"):
        begin(update(config, **{"model.width": 4}))
    # The kernels have the same shapes, but another function. A field with its default was not set.
    with pytest.raises(ConfigError, match=r"remove them:\n  model\.num_heads: 1 -> 2$"):
        begin(update(config, **{"model.num_heads": 1}))
    assert begin(update(config, **{"model.num_heads": 4})).config.model == tiny_gpt
    begin(update(config, **{"model.attention_dropout_rate": 0.7, "model.compute.scan_layers": True}))
    other = tmp_path / "other.txt"
    other.write_text("xyz " * 200)
    with pytest.raises(DataError, match="vocabular"):
        set_up(begin(update(config, **{"data.path": str(other)})))


def test_a_best_metric_that_is_never_measured_is_refused_before_the_first_step(tiny_config, quick_fit, tmp_path):
    with pytest.raises(ConfigError, match="best_metric must be one of loss, perplexity, got 'exact_match'"):
        quick_fit(tiny_config(best_metric="exact_match"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def live_bytes():
    """Of all arrays on the device."""
    gc.collect()
    return sum(array.nbytes for array in jax.live_arrays())


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["new", "resumed", "begun"])
def test_one_state_is_in_memory_while_a_run_trains(tiny_config, quick_fit, stop_at, tmp_path, monkeypatch, kind):
    """Not the initial one too, nor the restored one, nor the parameters that the run begins with."""
    monkeypatch.setenv("JAXNLP_TRUST", "tests")
    config = tiny_config(**{"model.width": 2048})
    if kind == "begun":
        quick_fit(config, tmp_path / "first")
        config = update(config, init_from=str(tmp_path / "first"))
    if kind == "resumed":
        with stop_at(2):
            quick_fit(config, tmp_path / "run")
    abstract = set_up(begin(config)).abstract_state
    size = sum(math.prod(x.shape) * 4 for x in jax.tree.leaves((abstract.params, abstract.opt_state)))
    jax.clear_caches()
    before, seen = live_bytes(), []

    def look(*_):
        seen.append(live_bytes() - before)
        raise KeyboardInterrupt

    monkeypatch.setattr(loop, "_log", look)
    with pytest.raises(KeyboardInterrupt):
        quick_fit(config, tmp_path / "run")
    # An array counts once, whatever the number of devices that have a copy.
    assert size <= seen[0] < 1.2 * size, (kind, seen[0], size)


@pytest.mark.thorough
def test_a_best_metric_that_is_declared_and_not_measured_is_named(tiny_config, quick_fit, tmp_path, monkeypatch):
    declared = LanguageModel.metrics
    monkeypatch.setattr(
        LanguageModel, "metrics", lambda *arguments: declared(*arguments) | {"accuracy": MetricKind("tokens")}
    )
    with pytest.raises(ValueError, match="LanguageModel declares the metric accuracy, but its evaluator validation"):
        quick_fit(tiny_config(best_metric="accuracy", total_steps=1), tmp_path)
