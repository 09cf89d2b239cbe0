"""Reading a run's checkpoints: their steps, records and parameters, with checks.

Each checkpoint has arrays (params, training, and ema if the run keeps an average) and one `Record`: config and
processor, the data's fingerprint, metrics, and a checksum of every array. A record has its own digest. Every load
checks them: an edited config, another processor, a flipped bit, a copied or renamed checkpoint and a missing item are
errors.
"""

import asyncio
import contextlib
import dataclasses
import hashlib
import json
import logging
import math
import re
import tempfile
from collections.abc import Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

import jax
import numpy as np

from jaxnlp.input_files.json_objects import parse_json
from jaxnlp.saving.checksums import checksums
from jaxnlp.saving.quiet_logging import logging_unchanged
from jaxnlp.saving.serialization import identity_changes, same_fields
from jaxnlp.typing import PyTree

with logging_unchanged():
    import orbax.checkpoint as ocp

_logger = logging.getLogger(__name__)

T = TypeVar("T")

CONFIG_FILE = "config.json"
PROCESSOR_FILE = "processor.json"
PLAIN_PATH = re.compile(r"[A-Za-z0-9_./-]+")
CHECKPOINTS = "checkpoints"
FORMAT = 2
"""The format of checkpoints. Format 1 has another kind of checksums."""
MOST_CHARACTERS = 300
"""Maximum number of characters of Orbax's error in our message."""
FEW_BYTES, PARTS_OF_READING = 2**22, 64
"""Few bytes, or a part of all, are read at once."""
PARAMS, EMA, TRAINING, RECORD = "params", "ema", "training", "record"


class RunError(ValueError):
    """A folder that is not a run, or a run without the requested file or checkpoint."""


class DamagedCheckpointError(ValueError):
    """A checkpoint whose contents have changed since it was saved."""

    exit_status = 1


@dataclasses.dataclass(frozen=True)
class Record:
    """The metadata of a checkpoint.

    Attributes:
      step: number of steps done.
      identity: see `TrainConfig.identity`.
      processor_digest: SHA-256 of the processor as JSON.
      description: of the data.
      fingerprint: of the data; changes when the data changes.
      train_seconds: spent on training so far.
      metrics: of the evaluation at this step: `loss`, and `score`, the best metric, negated if lower is better; None =
        not evaluated.
      losses, scores: the plain validation loss and the `score` of all evaluations so far.
      data_state: state of the data's iterator after the last batch.
      items: for each item, the checksum of each array, by path; see `jaxnlp.saving.checksums`.
      format: of the checkpoint; `FORMAT`, or another version's.
    """

    step: int
    identity: dict[str, Any]
    processor_digest: str
    description: str
    fingerprint: str
    train_seconds: float
    metrics: dict[str, float] | None
    losses: list[float]
    data_state: dict[str, Any]
    items: dict[str, dict[str, int]]
    scores: list[float]
    format: int = FORMAT

    def to_json(self) -> dict[str, Any]:
        """The record and its digest."""
        fields = dataclasses.asdict(self)
        return fields | {"digest": json_digest(fields)}

    @property
    def rank(self) -> tuple[float, float]:
        """The sort key of checkpoints, higher is better: the score, then the negative loss; NaN is worst."""
        metrics = self.metrics or {}
        score, loss = metrics.get("score", math.nan), metrics.get("loss", math.nan)
        return (-math.inf if math.isnan(score) else score, -math.inf if math.isnan(loss) else -loss)


def checkpoint_steps(folder: Path) -> list[int]:
    """The steps of a run's complete checkpoints, in ascending order."""
    path = (folder / CHECKPOINTS).absolute()
    return sorted(int(p.name) for p in path.iterdir() if p.name.isdecimal() and p.is_dir()) if path.is_dir() else []


def find_checkpoint(folder: Path, checkpoint: int | Literal["best", "latest"]) -> Record:
    """The record of a run's checkpoint; the best is the latest if none has a score or a loss.

    Raises:
      RunError: when the checkpoint does not exist; the message lists those that do.
      ValueError: when it is neither a step nor one of these words.
      DamagedCheckpointError: as `read_record`.
    """
    if isinstance(checkpoint, np.integer):
        checkpoint = int(checkpoint)
    if isinstance(checkpoint, bool) or (not isinstance(checkpoint, int) and checkpoint not in ("best", "latest")):
        raise ValueError(f"checkpoint must be best, latest or a step, got {checkpoint!r}")
    steps = checkpoint_steps(folder)
    if not steps:
        raise RunError(f"{folder} has no checkpoint yet")
    if isinstance(checkpoint, int) and checkpoint not in steps:
        raise RunError(f"{folder} has no checkpoint of step {checkpoint}; it has those of {', '.join(map(str, steps))}")
    if checkpoint == "best":
        ranked = []
        for step in steps:
            try:
                record = read_record(folder, step)
            except DamagedCheckpointError as error:
                _logger.warning("the checkpoint of step %d is ignored: %s", step, error)
                continue
            if record.rank > (-math.inf, -math.inf):
                ranked.append(record)
        if ranked:
            return max(ranked, key=lambda record: record.rank)
    return read_record(folder, checkpoint if isinstance(checkpoint, int) else steps[-1])


def read_checkpoint(folder: Path, checkpoint: int | Literal["best", "latest"], read: Callable[[Record], T]) -> T:
    """The result of `read` for the record of a run's checkpoint.

    A run in training deletes older checkpoints. If it deletes this one meanwhile, another one is chosen.

    Raises: as `find_checkpoint` and `read`.
    """
    failed = set[int | None]()
    while True:
        newest, record = checkpoint_steps(folder)[-1:], None
        try:
            record = find_checkpoint(folder, checkpoint)
            return read(record)
        except DamagedCheckpointError:
            step = None if record is None else record.step
            if step in failed or checkpoint_steps(folder)[-1:] == newest:  # it is damaged, and not deleted
                raise
            failed.add(step)


@logging_unchanged()
def read_record(folder: Path, step: int) -> Record:
    """Reads and checks the metadata of a checkpoint.

    Raises:
      DamagedCheckpointError: when it was changed, belongs to another step, or lacks an item.
      RunError: when another version of jaxnlp wrote it.
    """
    checkpoint = (folder / CHECKPOINTS / str(step)).absolute()
    read = _restore(checkpoint, {RECORD: ocp.JsonCheckpointHandler()}, {RECORD: ocp.args.JsonRestore()})[RECORD]
    fields = dict(read) if isinstance(read, dict) else {}
    digest = fields.pop("digest", None)
    if digest != json_digest(fields):
        raise DamagedCheckpointError(f"the record of checkpoint {checkpoint} fails its checksum")
    fields.setdefault("format", 1)
    record = Record(**fields)
    if record.format != FORMAT:
        raise RunError(
            f"checkpoint {checkpoint} has the format {record.format}, and this version of jaxnlp reads {FORMAT}; use "
            "the version that trained it, or train again"
        )
    if record.step != step:
        raise DamagedCheckpointError(f"checkpoint {checkpoint} is a copied or renamed checkpoint of step {record.step}")
    missing = [name for name in record.items if not (checkpoint / name).is_dir()]
    if missing:
        raise DamagedCheckpointError(f"checkpoint {checkpoint} is incomplete; missing: {', '.join(missing)}")
    return record


def read_run_files(folder: Path, record: Record) -> tuple[Any, Any]:
    """The config and the processor of a run, as JSON.

    Raises: RunError, naming the field, when one of the files was edited since the checkpoint.
    """
    path = folder / PROCESSOR_FILE
    if not path.is_file():
        raise RunError(f"{path} is missing; the run cannot be used without it")
    config, processor = _read_json(folder / CONFIG_FILE), _read_json(path)
    changed = identity_changes(record.identity, same_fields(config, record.identity), extended=True)
    if changed:
        lines = "".join(f"\n  {line}" for line in changed)
        raise RunError(f"{folder / CONFIG_FILE} was edited since the run was trained; undo the change:{lines}")
    if json_digest(processor) != record.processor_digest:
        raise RunError(f"{path} was edited since the run was trained, or belongs to another run; restore it")
    return config, processor


def read_params(folder: Path, record: Record, like: PyTree) -> PyTree:
    """A checkpoint's parameters for evaluation: the average if the run keeps one.

    Args:
      folder: of the run.
      record: of the checkpoint.
      like: jax.ShapeDtypeStruct of each parameter, with its sharding.

    Raises: DamagedCheckpointError when they fail their checksums.
    """
    item = EMA if EMA in record.items else PARAMS
    checkpoint = (folder / CHECKPOINTS / str(record.step)).absolute()
    restored = restore_items(checkpoint, **{item: like})[item]
    check_arrays(restored, record.items[item], f"{item} of checkpoint {checkpoint}")
    return restored


@logging_unchanged()
def restore_items(checkpoint: Path, **like: PyTree) -> Any:
    """Arrays of one checkpoint's folder, by item.

    Args:
      checkpoint: the checkpoint's folder.
      like: of each item, jax.ShapeDtypeStruct of each array, with its sharding.

    Raises: DamagedCheckpointError when an item cannot be read.
    """
    registry = ocp.type_handlers.create_type_handler_registry((jax.Array, _WaitingArrayHandler()))
    handlers = {
        name: ocp.PyTreeCheckpointHandler(
            type_handler_registry=registry, restore_concurrent_gb=_bytes_at_a_time(tree) / 1e9
        )
        for name, tree in like.items()
    }
    args = {
        name: ocp.args.PyTreeRestore(tree, restore_args=ocp.checkpoint_utils.construct_restore_args(tree))
        for name, tree in like.items()
    }
    return _restore(checkpoint, handlers, args)


def _bytes_at_a_time(like: PyTree) -> int:
    """The bytes of arrays to read at once: each takes three to four times its memory meanwhile."""
    sizes = [x.size * x.dtype.itemsize for x in jax.tree.leaves(like)]
    return max(FEW_BYTES, sum(sizes) // PARTS_OF_READING, *sizes) + 1


class _WaitingArrayHandler(ocp.type_handlers.ArrayHandler):
    """Reads arrays in parallel, and waits for all of them even if one cannot be read."""

    async def deserialize(self, infos: Sequence[Any], args: Sequence[Any] | None = None) -> Sequence[jax.Array]:
        """See Orbax."""
        read = super().deserialize

        async def one(info: Any, arg: Any) -> jax.Array:
            (array,) = await read([info], None if arg is None else [arg])
            return jax.block_until_ready(array)  # what was read is freed before more is read

        each = [None] * len(infos) if args is None else args
        return await all_ended(*(one(info, arg) for info, arg in zip(infos, each, strict=True)))


async def all_ended(*parts: Coroutine[Any, Any, T]) -> list[T]:
    """The results of parallel coroutines. Raises: the first error, when all of them have ended.

    `asyncio.gather` raises it at once; an unfinished read or write of TensorStore then prints a traceback, because its
    event loop is closed.
    """
    results = await asyncio.gather(*parts, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return cast(list[T], results)


def _restore(checkpoint: Path, handlers: dict[str, Any], args: dict[str, Any]) -> Any:
    """Items of one checkpoint's folder. Raises: DamagedCheckpointError when one cannot be read."""
    missing = [name for name in args if not (checkpoint / name).is_dir()]
    if missing:
        raise DamagedCheckpointError(f"checkpoint {checkpoint} is incomplete; missing: {', '.join(missing)}")
    try:
        # Orbax's checkpointer would wait for a process that cannot read.
        handler = ocp.CompositeCheckpointHandler(**handlers)
        with plain_path(checkpoint) as path, contextlib.closing(handler):
            return handler.restore(path, args=ocp.args.Composite(**args))
    except MemoryError:
        raise
    # Orbax and TensorStore raise errors of many types for damaged files.
    except Exception as error:
        said = " ".join(str(error).split())[:MOST_CHARACTERS]  # of many lines
        raise DamagedCheckpointError(f"checkpoint {checkpoint} cannot be read; choose another: {said}") from error


@contextlib.contextmanager
def plain_path(folder: Path) -> Iterator[Path]:
    """The absolute path of a folder; a link to it if its path has special characters.

    Orbax finds its files by glob, for which `lr[0.1]` is a pattern. For TensorStore a backslash separates folders.
    """
    if PLAIN_PATH.fullmatch(str(folder)):
        yield folder
        return
    with tempfile.TemporaryDirectory() as directory:
        link = Path(directory) / "link"
        link.symlink_to(folder, target_is_directory=True)
        yield link


def check_arrays(tree: PyTree, expected: dict[str, int], name: str) -> None:
    """Raises DamagedCheckpointError, naming the first array that fails its checksum."""
    actual = checksums(tree)
    changed = sorted(path for path in actual.keys() | expected.keys() if actual.get(path) != expected.get(path))
    if changed:
        raise DamagedCheckpointError(f"{name}: arrays that fail their checksum: {len(changed)}, first: {changed[0]}")


def json_digest(value: Any) -> str:
    """SHA-256 of a JSON value; the order of its keys does not matter."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, ensure_ascii=True).encode()).hexdigest()


def _read_json(path: Path) -> Any:
    try:
        return parse_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RunError(f"{path} cannot be read: {error}") from error
