"""Checkpoints of a run: state, data iterator and digests in one atomic item. Damaged checkpoints are moved."""

import contextlib
import dataclasses
import errno
import functools
import logging
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import orbax.checkpoint as ocp
from orbax.checkpoint import checkpoint_managers
from orbax.checkpoint._src.futures import future, synchronization

from jaxnlp.saving.atomic_files import naming
from jaxnlp.saving.checkpoint_reading import (
    CHECKPOINTS,
    EMA,
    PARAMS,
    RECORD,
    TRAINING,
    DamagedCheckpointError,
    Record,
    RunError,
    all_ended,
    check_arrays,
    checkpoint_steps,
    json_digest,
    plain_path,
    read_record,
    restore_items,
)
from jaxnlp.saving.checksums import checksums
from jaxnlp.saving.quiet_logging import logging_unchanged
from train.parallel import Parallel
from train.run.continuation import check_continuation
from train.run.folder import RunMismatchError, RunSpec, writes_folder
from train.run.processes import by_all, of_process_0
from train.run.progress import RunProgress
from train.run.setup import Setup
from train.step import TrainState

_logger = logging.getLogger(__name__)

DAMAGED = "damaged_checkpoints"
BYTES_OF_FILES, BYTES_OF_METADATA = 200_000, 2_000
"""Upper bounds of a checkpoint's size on disk: without arrays, and of an array without its values."""


class Restored(NamedTuple):
    """A run at its latest checkpoint, and the state of the data's iterator after the last batch."""

    progress: RunProgress
    data_state: dict[str, Any]


class Checkpoints:
    """The checkpoints of a run.

    Saving is asynchronous: training continues while the files are written, and an unfinished checkpoint is ignored if
    the process dies. A context manager: its exit waits for the writing. Before the first `save` nothing is written, but
    damaged checkpoints are moved.
    """

    def __init__(self, workdir: Path, *, keep: int):
        self._workdir = workdir
        self._folder = (workdir / CHECKPOINTS).absolute()
        self._keep = keep
        self._ranks: dict[int, tuple[float, float]] = {}
        self._manager: ocp.CheckpointManager | None = None
        self._opened: os.stat_result | None = None
        self._on_exit = contextlib.ExitStack()

    def _open(self) -> ocp.CheckpointManager:
        """Orbax's manager, made at the first save, because it writes."""
        if self._manager is None:
            self._on_exit.enter_context(logging_unchanged())
            for step in checkpoint_steps(self._workdir):
                with contextlib.suppress(DamagedCheckpointError):  # a damaged checkpoint is never the best
                    self._rank(read_record(self._workdir, step))
            options = ocp.CheckpointManagerOptions(
                preservation_policy=_NewestAndBest(self._keep, self._ranks), cleanup_tmp_directories=True
            )
            self._folder.mkdir(parents=True, exist_ok=True)
            self._opened = self._folder.stat()
            path = self._on_exit.enter_context(plain_path(self._folder))
            self._manager = _Manager(path, options=options, item_handlers=_handlers())
        return self._manager

    def _rank(self, record: Record) -> None:
        if record.metrics is not None:
            self._ranks[record.step] = record.rank

    def latest_step(self) -> int | None:
        """The latest saved step, or None."""
        if self._manager is not None:
            return self._manager.latest_step()
        steps = checkpoint_steps(self._workdir)
        return steps[-1] if steps else None

    def save(
        self,
        state: TrainState,
        spec: RunSpec,
        progress: RunProgress,
        metrics: dict[str, float] | None,
        data_state: dict[str, Any],
    ) -> None:
        """Starts saving; the arrays may be donated as soon as this returns.

        Args:
          state: without the layout over devices, see `Parallel.fetch`.
          spec: of the run.
          progress: of the run, including the evaluation of this step.
          metrics: `score` and `loss` of this state, when it was evaluated; see `Record`.
          data_state: state of the data's iterator after the last batch.
        """
        step = int(state.step)
        manager = self._open()
        if step in manager.all_steps():
            return
        with self._writing():
            manager.wait_until_finished()  # so that only one copy is held; Orbax would wait after it
        items = jax.tree.map(_to_write, _items(state))
        record = Record(
            step=step,
            identity=spec.identity,
            processor_digest=json_digest(spec.processor),
            description=spec.description,
            fingerprint=spec.fingerprint,
            train_seconds=progress.train_seconds,
            metrics=metrics,
            losses=list(progress.losses),
            scores=list(progress.scores),
            data_state=data_state,
            items={name: checksums(tree) for name, tree in items.items()},
        )
        by_all(functools.partial(self._require_space, bytes_on_disk(items)), OSError)
        self._rank(record)
        with self._writing():
            manager.save(
                step,
                args=ocp.args.Composite(
                    **{name: ocp.args.PyTreeSave(tree) for name, tree in items.items()},
                    **{RECORD: ocp.args.JsonSave(record.to_json())},
                ),
            )

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """A context in which Orbax writes. Raises: OSError naming the folder when it cannot, or was moved."""
        try:
            with naming(self._folder):
                self._require_folder()
                yield
        except Exception:
            self._require_folder()  # Orbax has an error of its own for each of its files that is not where it was
            raise

    def _require_folder(self) -> None:
        """Raises FileNotFoundError when the folder was moved or deleted. Orbax would make a new one."""
        there = self._folder.stat() if self._folder.is_dir() else None
        if self._opened is not None and (there is None or not os.path.samestat(there, self._opened)):
            missing = "the folder was moved or deleted while the run wrote to it; repeat the command where it is now"
            raise FileNotFoundError(errno.ENOENT, missing, str(self._folder))

    def _require_space(self, needed: int) -> None:
        """Raises OSError when the disk has no space for a checkpoint.

        Orbax would fail in several threads, each with an error and half-written files."""
        usage = shutil.disk_usage(self._folder)
        if usage.free < needed and usage.total:  # some network disks do not report their size
            sizes = f"{usage.free / 1e6:.2f} MB are free, and it takes up to {needed / 1e6:.2f} MB"
            raise OSError(errno.ENOSPC, f"no space left for a checkpoint: {sizes}", str(self._folder))

    def resume(self, setup: Setup, layout: Parallel, batches: Any) -> RunProgress:
        """The run at its latest readable checkpoint, or before its first step if nothing was saved.

        Args:
          setup: of the run.
          layout: of the arrays over devices.
          batches: the data's iterator, which is moved to the next batch.

        Raises: as `check_continuation` and `restore_latest`; nothing is written then.
        """
        check = functools.partial(check_continuation, run=setup.spec, workdir=self._workdir)
        restored = self.restore_latest(layout.like(setup.abstract_state), check)
        if restored is None:
            return RunProgress(layout.initialise(setup.initial_state, setup.given))
        batches.set_state(restored.data_state)
        return dataclasses.replace(restored.progress, state=layout.place(restored.progress.state))

    def restore_latest(
        self, like: TrainState, check: Callable[[Record], None] = lambda record: None
    ) -> Restored | None:
        """The latest readable checkpoint; None if nothing was saved.

        Damaged checkpoints after it are logged and moved to `damaged_checkpoints`. Older ones stay: usually the process
        died while it deleted them, and the next save completes that.

        Args:
          like: an abstract state, with the shardings for reading.
          check: raises when a record belongs to another run; called before anything is moved or its arrays are read.

        Raises: DamagedCheckpointError when all checkpoints are damaged; nothing is moved then.
        """
        failures: dict[int, str] = {}
        restored: Restored | None = None
        for step in of_process_0(checkpoint_steps(self._workdir)[::-1]):
            try:
                record = by_all(functools.partial(read_record, self._workdir, step), DamagedCheckpointError)
                if restored is None:
                    by_all(functools.partial(check, record), RunMismatchError, RunError)
                    restored = Restored(self._restore(record, like), record.data_state)
            except DamagedCheckpointError as error:
                failures[step] = str(error)
                continue
            self._rank(record)
        if failures and restored is None:
            reasons = "; ".join(f"{self._folder / str(step)}: {reason[:300]}" for step, reason in failures.items())
            raise DamagedCheckpointError(f"no checkpoint can be read; to start over, give another --workdir: {reasons}")
        if restored is not None:
            newest = restored.progress.step
            for step in [step for step in failures if step > newest]:
                self._set_aside(step, failures[step], continuing_from=newest)
        return restored

    def _restore(self, record: Record, like: TrainState) -> RunProgress:
        expected = _items(like)
        path = self._folder / str(record.step)
        if expected.keys() != record.items.keys():
            raise DamagedCheckpointError(
                f"checkpoint {path} has {', '.join(record.items)}, expected {', '.join(expected)}"
            )
        items = by_all(functools.partial(restore_items, path, **expected), DamagedCheckpointError)
        for name in expected:
            where = f"{name} of checkpoint {path}"
            by_all(functools.partial(check_arrays, items[name], record.items[name], where), DamagedCheckpointError)
        rest = dict(items[TRAINING])
        key = jax.random.wrap_key_data(rest.pop("key"))
        state = TrainState(params=items[PARAMS], ema=items.get(EMA), key=key, **rest)
        return RunProgress(state, record.step, record.train_seconds, record.losses, record.scores)

    def _set_aside(self, step: int, reason: str, *, continuing_from: int) -> None:
        if not writes_folder():
            return
        damaged = self._workdir / DAMAGED
        damaged.mkdir(exist_ok=True)
        target, number = damaged / str(step), 1
        while target.exists():
            number += 1
            target = damaged / f"{step}.{number}"
        shutil.move(self._folder / str(step), target)
        _logger.warning(
            "the checkpoint of step %d is damaged (%s); moved to %s, continuing from step %d",
            *(step, reason.splitlines()[0][:300], target, continuing_from),
        )

    def __enter__(self) -> "Checkpoints":
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Waits until all saved checkpoints are on disk. Raises: errors of the writing."""
        with self._on_exit, self._writing():
            if self._manager is None:
                return
            failed = True
            try:
                self._manager.close()
                failed = error is not None
            except RuntimeError as other:  # Orbax also waits for a thread that could not begin to write
                if error is None or not str(other).startswith("cannot join thread before it is started"):
                    raise
            finally:
                if failed:
                    _end_waiting_threads()


def _end_waiting_threads() -> None:
    """Ends the threads of a save that failed before its folder existed: the process would wait five minutes for them at
    its end."""
    if jax.process_count() == 1:
        save = synchronization.OperationIdGenerator.get_current_operation_id()
        future.set_signals([*synchronization.HandlerAwaitableSignal], operation_id=save)


def bytes_on_disk(items: Any) -> int:
    """An upper bound of the size of a checkpoint with these items."""
    return BYTES_OF_FILES + sum(array.nbytes + BYTES_OF_METADATA for array in jax.tree.leaves(items))


def _handlers() -> dict[str, Any]:
    """Orbax's handlers of the items: without a second copy, and without compression, which hardly helps."""
    registry = ocp.type_handlers.create_type_handler_registry(
        (np.ndarray, _WaitingNumpyHandler(deepcopy_host_arrays=False)),  # `_to_write` has copied them
        (jax.Array, ocp.type_handlers.ArrayHandler(use_replica_parallel=False)),  # it has copied one of equal shards
    )
    items: dict[str, Any] = {
        name: ocp.PyTreeCheckpointHandler(type_handler_registry=registry, use_compression=False)
        for name in (PARAMS, TRAINING, EMA)
    }
    return items | {RECORD: ocp.JsonCheckpointHandler()}


class _Manager(ocp.CheckpointManager):
    """Saves when it is told to, and does not ask whether a signal stops the run."""

    def reached_preemption(self, step: int) -> bool:
        """False. Otherwise Orbax asks JAX about steps that were saved before, also from a thread. JAX takes the last
        step that a process asked about as its present step, so processes would stop after different steps."""
        del step
        return False


class _WaitingNumpyHandler(ocp.type_handlers.NumpyHandler):
    """Writes arrays in parallel, and waits for all of them even if one cannot be written."""

    async def _background_serialize(self, *arguments: Sequence[Any]) -> None:
        """See Orbax. Args: the arrays, and for each its description and its options."""
        write = super()._background_serialize
        await all_ended(*(write(*([one] for one in array)) for array in zip(*arguments, strict=True)))


class _NewestAndBest(checkpoint_managers.PreservationPolicy):
    """Keeps the latest checkpoints, and the best evaluated one."""

    def __init__(self, keep: int, ranks: dict[int, tuple[float, float]]):
        self._keep, self._ranks = keep, ranks

    def should_preserve(self, checkpoints: Sequence[Any], *, context: Any) -> Sequence[bool]:
        """See Orbax. Args: the checkpoints in ascending order of their steps."""
        del context
        steps = [checkpoint.step for checkpoint in checkpoints]
        newest = set(sorted(steps)[-self._keep :])
        evaluated = [step for step in steps if step in self._ranks]
        best = max(evaluated, key=lambda step: (self._ranks[step], -step), default=None)
        return [step in newest or step == best for step in steps]


def _items(state: TrainState) -> dict[str, Any]:
    """The items of a state, or of an abstract state. Inference reads only `ema` or `params`."""
    training = {
        "step": state.step,
        "key": _key_data(state.key),
        "opt_state": state.opt_state,
        "skipped_updates": state.skipped_updates,
        "first_skipped_step": state.first_skipped_step,
    }
    if state.averaged is not None:
        training["averaged"] = state.averaged
    if jax.tree.leaves(state.carry):
        training["carry"] = state.carry
    return {PARAMS: state.params, TRAINING: training} | ({} if state.ema is None else {EMA: state.ema})


def _to_write(array: Any) -> Any:
    """A copy on the host of the part of an array that this process writes. The next training step does not change it.

    Process 0 writes replicated arrays, and the other processes return only their shape. Of a sharded array, each
    process writes one copy of each of its shards. On accelerators Orbax copies arrays itself.
    """
    on_accelerator = isinstance(array, jax.Array) and next(iter(array.devices())).platform != "cpu"
    if not isinstance(array, jax.Array) or array.is_fully_replicated:
        if not writes_folder():
            return np.broadcast_to(np.zeros((), array.dtype), array.shape)
        return np.asarray(array) if on_accelerator else np.array(array)  # the first is a copy, too
    if on_accelerator:
        return array
    shards = [
        jax.device_put(shard.data, shard.device, may_alias=False) if shard.replica_id == 0 else shard.data
        for shard in array.addressable_shards
    ]
    return jax.make_array_from_single_device_arrays(array.shape, array.sharding, shards)


def _key_data(key: Any) -> Any:
    if not isinstance(key, jax.ShapeDtypeStruct):
        return jax.random.key_data(key)
    data = jax.eval_shape(jax.random.key_data, key)
    return jax.ShapeDtypeStruct(data.shape, data.dtype, sharding=key.sharding)
