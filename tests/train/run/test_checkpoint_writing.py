import errno
import logging
import shutil
import types

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest

from jaxnlp.saving.checkpoint_reading import DamagedCheckpointError, read_record
from tests.run_folders import EVERY_SIGN
from tests.small_disk import small_disk
from train.run.checkpoint_writing import Checkpoints, _items, _to_write, bytes_on_disk
from train.run.folder import RunMismatchError, RunSpec
from train.run.progress import RunProgress
from train.step import init_state


def make_state(step, *, ema=True, seed=7):
    """A state with values of its own for each step; one array is large enough to have files of its own."""
    generator = np.random.default_rng(step)
    params = {
        "dense": {"kernel": jnp.array(generator.normal(size=(60, 40)), jnp.float32)},
        "norm": {"scale": jnp.array(generator.normal(size=3), jnp.float32)},
    }
    state = init_state(params, optax.adam(0.1), jax.random.key(seed), ema=ema)
    opt_state = jax.tree.map(lambda x: x + step, state.opt_state)
    return state.replace(step=jnp.int32(step), opt_state=opt_state, skipped_updates=jnp.int32(step // 2))


SPEC = RunSpec({}, {"recipe": "r"}, {"type": "jaxnlp.text:P"}, "d", "f")


def save_state(checkpoints, step, metrics=None, state=None, **options):
    state = make_state(step, **options) if state is None else state
    checkpoints.save(state, SPEC, RunProgress(state, step, step + 0.5), metrics, {"next_index": step})


def save(folder, steps, *, keep=10, losses=None, ema=True):
    with Checkpoints(folder, keep=keep) as checkpoints:
        for step in steps:
            loss = None if losses is None else losses[step]
            metrics = None if loss is None else {"score": -loss, "loss": loss}
            save_state(checkpoints, step, metrics, ema=ema)


def restore(folder, *, ema=True):
    with Checkpoints(folder, keep=10) as checkpoints:
        return checkpoints.restore_latest(like(make_state(0, ema=ema, seed=0)))


def like(state):
    """The abstract state that is restored into."""
    here = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=here), state)


def steps_on_disk(folder):
    return sorted(int(path.name) for path in (folder / "checkpoints").iterdir())


def contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def assert_restored(restored, step, *, ema=True):
    expected = make_state(step, ema=ema)
    chex.assert_trees_all_equal_shapes_and_dtypes(restored.progress.state.replace(key=None), expected.replace(key=None))
    chex.assert_trees_all_equal(restored.progress.state.replace(key=None), expected.replace(key=None))
    np.testing.assert_array_equal(jax.random.key_data(restored.progress.state.key), jax.random.key_data(expected.key))
    assert jax.random.key_impl(restored.progress.state.key) == jax.random.key_impl(expected.key)
    assert (restored.data_state, restored.progress.train_seconds) == ({"next_index": step}, step + 0.5)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A folder with the checkpoints of steps 1, 2 and 3; tests copy it."""
    folder = tmp_path_factory.mktemp("saved")
    save(folder, [1, 2, 3], losses={1: 3.0, 2: 2.0, 3: 1.0})
    return folder


@pytest.fixture
def run(saved, tmp_path):
    return shutil.copytree(saved, tmp_path / "run")


@pytest.mark.parametrize("ema", [True, False])
def test_what_was_saved_is_restored_bit_for_bit(tmp_path, ema):
    save(tmp_path, [3], ema=ema)
    assert_restored(restore(tmp_path, ema=ema), 3, ema=ema)


@pytest.mark.thorough
def test_restored_key_draws_the_same_numbers(run):
    key = restore(run).progress.state.key
    np.testing.assert_array_equal(jax.random.normal(key, (4,)), jax.random.normal(jax.random.key(7), (4,)))


def test_newest_is_restored(run):
    assert_restored(restore(run), 3)


def test_new_folder_has_nothing_to_restore(tmp_path):
    with Checkpoints(tmp_path, keep=1) as checkpoints:
        assert checkpoints.latest_step() is None
        assert checkpoints.restore_latest(like(make_state(0))) is None


def test_leaving_waits_until_everything_is_on_disk(tmp_path):
    save(tmp_path, [1])
    assert steps_on_disk(tmp_path) == [1]
    assert not [name for name in contents(tmp_path) if "tmp" in name]


def test_saving_a_step_again_keeps_the_first(run):
    before = contents(run)
    save(run, [3])
    assert contents(run) == before


@pytest.mark.thorough
def test_buffers_may_be_donated_as_soon_as_save_returns(tmp_path):
    size = 2_000_000
    overwrite = jax.jit(lambda state: jax.tree.map(lambda x: x * 0 - 1, state), donate_argnums=0)
    state = init_state({"kernel": jnp.arange(size, dtype=jnp.float32)}, optax.adam(0.1), jax.random.key(0), ema=True)
    shapes = like(state)
    with Checkpoints(tmp_path, keep=2) as checkpoints:
        save_state(checkpoints, 0, state=state)
        rest = state.replace(key=None)
        for _ in range(20):
            rest = overwrite(rest)
    assert float(rest.params["kernel"][0]) == -1.0
    with Checkpoints(tmp_path, keep=2) as checkpoints:
        restored = checkpoints.restore_latest(shapes)
    for tree in (restored.progress.state.params, restored.progress.state.ema):
        np.testing.assert_array_equal(tree["kernel"], np.arange(size, dtype=np.float32))


@pytest.mark.thorough
def test_newest_and_best_are_kept_and_no_others(tmp_path):
    save(tmp_path, [1, 2, 3, 4, 5], keep=2, losses={1: 3.0, 2: 1.0, 3: 4.0, 4: 2.0, 5: 5.0})
    assert steps_on_disk(tmp_path) == [2, 4, 5]


def test_best_among_the_newest_takes_no_extra_place(tmp_path):
    save(tmp_path, [1, 2, 3, 4], keep=2, losses={1: 4.0, 2: 3.0, 3: 2.0, 4: 1.0})
    assert steps_on_disk(tmp_path) == [3, 4]


@pytest.mark.thorough
def test_checkpoints_without_an_evaluation_do_not_pile_up(tmp_path):
    save(tmp_path, range(1, 7), keep=2, losses=dict.fromkeys(range(1, 7)) | {2: 1.0, 4: 2.0})
    assert steps_on_disk(tmp_path) == [2, 5, 6]


@pytest.mark.thorough
def test_best_is_kept_over_a_restart_and_no_others(tmp_path):
    losses = {1: 3.0, 2: 1.0, 3: 4.0, 4: 2.0, 5: 5.0, 6: 6.0}
    for steps in ([1, 2, 3], [4], [5, 6]):
        save(tmp_path, steps, keep=2, losses=losses)
    assert steps_on_disk(tmp_path) == [2, 5, 6]


@pytest.mark.thorough
def test_nan_is_never_the_best_loss(tmp_path):
    nan = float("nan")
    save(tmp_path, range(1, 7), keep=1, losses={1: nan, 2: 2.0, 3: nan, 4: 1.0, 5: nan, 6: 3.0})
    assert steps_on_disk(tmp_path) == [4, 6]


def test_unfinished_checkpoint_does_not_count_and_the_next_save_removes_it(run):
    whole = run / "checkpoints" / "3"
    unfinished = run / "checkpoints" / "5.orbax-checkpoint-tmp"
    shutil.copytree(whole, unfinished)
    shutil.rmtree(unfinished / "params")
    assert_restored(restore(run), 3)
    save(run, [4])
    assert steps_on_disk(run) == [1, 2, 3, 4]


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def truncate(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def remove(path):
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


def only(paths):
    """The largest of a few files."""
    return max(paths, key=lambda path: path.stat().st_size)


PARTS = {
    "parameters": lambda step: only((step / "params" / "d").iterdir()),
    "moving average": lambda step: only((step / "ema" / "d").iterdir()),
    "optimizer": lambda step: only((step / "training" / "d").iterdir()),
    "index of the parameters": lambda step: step / "params" / "manifest.ocdbt",
    "index of the optimizer": lambda step: step / "training" / "manifest.ocdbt",
    "record": lambda step: step / "record" / "metadata",
}
FOLDERS = {name: lambda step, name=name: step / name for name in ("params", "ema", "training", "record")}


@pytest.mark.sweep(1)
@pytest.mark.parametrize(
    ("damage", "part"),
    [(damage, part) for part in PARTS.values() for damage in (flip, truncate, remove)]
    + [(remove, part) for part in FOLDERS.values()],
    ids=[f"{damage}-{part}" for part in PARTS for damage in ("flipped", "cut", "missing")]
    + [f"missing-folder-{name}" for name in FOLDERS],
)
def test_damaged_newest_is_named_and_set_aside_and_the_previous_one_restored(run, caplog, damage, part):
    damage(part(run / "checkpoints" / "3"))
    as_damaged = contents(run / "checkpoints" / "3")
    with caplog.at_level(logging.WARNING, logger="train.run.checkpoint_writing"):
        restored = restore(run)
    assert_restored(restored, 2)
    (warning,) = [record.getMessage() for record in caplog.records if record.name == "train.run.checkpoint_writing"]
    assert warning.startswith("the checkpoint of step 3 is damaged (")
    assert f"moved to {run / 'damaged_checkpoints' / '3'}, continuing from step 2" in warning
    assert contents(run / "damaged_checkpoints" / "3") == as_damaged
    assert steps_on_disk(run) == [1, 2]


@pytest.mark.sweep(1)
@pytest.mark.parametrize("damage", [flip, truncate, remove], ids=["flipped", "cut", "missing"])
def test_every_damaged_file_is_noticed_and_the_run_still_continues(run, damage):
    newest = run / "checkpoints" / "3"
    for path in [path for path in newest.rglob("*") if path.is_file() and "training" not in path.parts]:
        whole = path.read_bytes()
        damage(path)
        restored = restore(run)
        assert_restored(restored, int(restored.progress.state.step))
        if not newest.exists():  # set aside
            shutil.move(run / "damaged_checkpoints" / "3", newest)
        path.write_bytes(whole)


@pytest.mark.parametrize("field", ["next_index", "train_seconds"])
def test_flipped_digit_of_the_data_state_is_noticed(run, field):
    path = run / "checkpoints" / "3" / "record" / "metadata"
    content = path.read_text()
    changed = content.replace(f'"{field}": 3', f'"{field}": 2')
    assert changed != content
    path.write_text(changed)
    assert_restored(restore(run), 2)


def test_several_damaged_checkpoints_are_all_set_aside(run, caplog):
    for step in ("2", "3"):
        flip(PARTS["parameters"](run / "checkpoints" / step))
    assert_restored(restore(run), 1)
    assert sorted(path.name for path in (run / "damaged_checkpoints").iterdir()) == ["2", "3"]
    assert steps_on_disk(run) == [1]


def test_only_the_first_process_sets_a_damaged_checkpoint_aside(run, monkeypatch):
    flip(PARTS["parameters"](run / "checkpoints" / "3"))
    before = contents(run)
    monkeypatch.setattr("train.run.checkpoint_writing.writes_folder", lambda: False)
    assert_restored(restore(run), 2)
    assert contents(run) == before


def test_damaged_older_checkpoint_stays_where_it_is(run):
    flip(PARTS["parameters"](run / "checkpoints" / "2"))
    assert_restored(restore(run), 3)
    assert steps_on_disk(run) == [1, 2, 3]


def test_the_checkpoint_that_is_restored_is_checked_and_not_only_the_newest(run):
    flip(PARTS["parameters"](run / "checkpoints" / "3"))
    before, seen = contents(run), []

    def check(record):
        seen.append(record.step)
        if record.step == 2:
            raise RunMismatchError("of another run")

    with Checkpoints(run, keep=10) as checkpoints, pytest.raises(RunMismatchError, match="of another run"):
        checkpoints.restore_latest(like(make_state(0)), check)
    assert seen == [3, 2]
    assert contents(run) == before


def test_a_full_disk_is_found_before_a_checkpoint_is_written(tmp_path, monkeypatch):
    save(tmp_path, [1])
    written = sum(path.stat().st_blocks * 512 for path in (tmp_path / "checkpoints" / "1").rglob("*"))
    needed = bytes_on_disk(_items(make_state(1)))
    assert written <= needed
    monkeypatch.setattr(shutil, "disk_usage", lambda _: types.SimpleNamespace(free=needed - 1, total=2 * needed))
    with pytest.raises(OSError, match="no space left for a checkpoint: ") as caught:
        save(tmp_path, [2])
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, str(tmp_path / "checkpoints"))
    assert steps_on_disk(tmp_path) == [1]
    monkeypatch.setattr(shutil, "disk_usage", lambda _: types.SimpleNamespace(free=0, total=0))  # not known
    save(tmp_path, [2])
    assert steps_on_disk(tmp_path) == [1, 2]


def test_an_error_of_the_disk_while_a_checkpoint_is_written_names_the_folder(tmp_path, monkeypatch):
    def full(*_, **__):
        raise ValueError("RESOURCE_EXHAUSTED: Error writing: [OS error 28: ENOSPC No space left on device]")

    monkeypatch.setattr(ocp.CheckpointManager, "save", full)
    with pytest.raises(OSError, match="No space left on device") as caught:
        save(tmp_path, [1])
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, str(tmp_path / "checkpoints"))


def test_a_write_that_fails_in_a_thread_names_the_folder_and_leaves_no_other_write_open(tmp_path, monkeypatch):
    make_state(1)  # its programs are compiled, and kept on disk
    unraisable = []
    monkeypatch.setattr("sys.unraisablehook", unraisable.append)
    with small_disk(), pytest.raises(OSError, match="File too large") as caught:
        save(tmp_path, [1, 2])  # the second save waits for the first
    assert caught.value.filename == str(tmp_path / "checkpoints")
    assert not unraisable


@pytest.mark.sweep(1)
@pytest.mark.parametrize(
    "left", [(), ("params",), ("params", "training"), ("record",)], ids=lambda x: "-".join(x) or "none"
)
def test_a_kill_while_an_older_checkpoint_is_deleted_does_no_harm(run, caplog, left):
    for path in (run / "checkpoints" / "2").iterdir():
        if path.name not in left:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    with caplog.at_level(logging.WARNING, logger="train.run"), Checkpoints(run, keep=2) as checkpoints:
        assert_restored(checkpoints.restore_latest(like(make_state(0))), 3)
        save_state(checkpoints, 4)
    assert [record for record in caplog.records if record.name == "train.run.checkpoint_writing"] == []
    assert not (run / "damaged_checkpoints").exists()
    assert 2 not in steps_on_disk(run)
    assert_restored(restore(run), 4)


def test_same_step_damaged_twice_is_set_aside_twice(run):
    for _ in range(2):
        flip(PARTS["parameters"](run / "checkpoints" / "3"))
        assert_restored(restore(run), 2)
        save(run, [3])
    assert sorted(path.name for path in (run / "damaged_checkpoints").iterdir()) == ["3", "3.2"]
    assert_restored(restore(run), 3)


def test_all_damaged_is_an_error_that_names_each_and_nothing_is_moved(run):
    for step in ("1", "2", "3"):
        remove(run / "checkpoints" / step / "params")
    before = contents(run)
    with pytest.raises(DamagedCheckpointError) as caught:
        restore(run)
    assert all(str(run / "checkpoints" / step) in str(caught.value) for step in ("1", "2", "3"))
    assert contents(run) == before
    assert not (run / "damaged_checkpoints").exists()


def test_saving_continues_after_a_damaged_checkpoint_was_set_aside(run):
    flip(PARTS["parameters"](run / "checkpoints" / "3"))
    with Checkpoints(run, keep=10) as checkpoints:
        checkpoints.restore_latest(like(make_state(0)))
        assert checkpoints.latest_step() == 2
        save_state(checkpoints, 3)
    assert_restored(restore(run), 3)


def test_the_record_of_a_checkpoint_says_what_was_saved(run):
    record = read_record(run, 3)
    assert (record.step, record.identity, record.metrics) == (3, {"recipe": "r"}, {"score": -1.0, "loss": 1.0})
    assert record.items.keys() == {"params", "ema", "training"}


def test_a_copy_of_another_step_is_set_aside(run):
    """Saving a step again keeps the first: a copy would stay with the weights of another step."""
    shutil.rmtree(run / "checkpoints" / "3")
    shutil.copytree(run / "checkpoints" / "2", run / "checkpoints" / "3")
    assert_restored(restore(run), 2)
    assert steps_on_disk(run) == [1, 2]


def test_a_tie_of_the_score_is_broken_by_the_loss_and_nan_is_worst(tmp_path):
    pairs = {1: (0.5, 2.0), 2: (0.5, 1.0), 3: (float("nan"), 0.1), 4: (0.5, float("nan")), 5: (0.1, 0.1)}
    with Checkpoints(tmp_path, keep=1) as checkpoints:
        for step, (score, loss) in pairs.items():
            save_state(checkpoints, step, {"score": score, "loss": loss})
    assert steps_on_disk(tmp_path) == [2, 5]


def test_nothing_is_written_before_the_first_save(tmp_path):
    with Checkpoints(tmp_path / "run", keep=1) as checkpoints:
        assert checkpoints.restore_latest(like(make_state(0))) is None
    assert not (tmp_path / "run").exists()


@pytest.mark.sweep(1)
@pytest.mark.parametrize("name", [EVERY_SIGN, "\\"], ids=["every sign", "a backslash"])
def test_a_folder_of_any_name_can_be_read(tmp_path, name):
    folder = tmp_path / name
    save(folder, [1, 2], keep=1)
    assert_restored(restore(folder), 2)
    assert steps_on_disk(folder) == [2]


def test_of_arrays_that_each_process_has_whole_only_process_0_holds_a_copy(monkeypatch):
    array = jnp.arange(6, dtype=jnp.bfloat16).reshape(2, 3)
    np.testing.assert_array_equal(_to_write(array), array)
    monkeypatch.setattr(jax, "process_index", lambda: 1)
    other = _to_write(array)
    assert (other.shape, other.dtype, other.strides) == ((2, 3), array.dtype, (0, 0))


def test_a_state_is_copied_when_the_one_before_is_on_disk(tmp_path, monkeypatch):
    events = []
    wait = ocp.CheckpointManager.wait_until_finished
    monkeypatch.setattr(ocp.CheckpointManager, "wait_until_finished", lambda self: (wait(self), events.append("wait")))
    monkeypatch.setattr(
        "train.run.checkpoint_writing._to_write", lambda array: (events.append("copy"), _to_write(array))[1]
    )
    with Checkpoints(tmp_path, keep=2) as checkpoints:
        save_state(checkpoints, 1)
        events.clear()
        save_state(checkpoints, 2)
    assert events[0] == "wait"
    assert "copy" in events


def test_a_record_that_another_process_refuses_is_refused_before_its_arrays_are_read(saved, monkeypatch):
    def by_all_but_another(act, *refusals):
        if RunMismatchError in refusals:
            raise refusals[0]("process 1 refused it")
        return act()

    monkeypatch.setattr("train.run.checkpoint_writing.by_all", by_all_but_another)
    with pytest.raises(RunMismatchError, match="process 1 refused it"):
        restore(saved)
