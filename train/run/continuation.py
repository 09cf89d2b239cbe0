"""Checks before a run continues in its folder."""

import dataclasses
import json
from pathlib import Path
from typing import Any

from jaxnlp.corpus import Corpus, DataConfig, errors_as
from jaxnlp.saving.checkpoint_reading import (
    CHECKPOINTS,
    CONFIG_FILE,
    PROCESSOR_FILE,
    Record,
    checkpoint_steps,
    json_digest,
    read_checkpoint,
    read_run_files,
)
from jaxnlp.saving.serialization import differences, identity_changes, processor_from_json, same_fields, to_json
from train.config import TrainConfig
from train.run.folder import (
    ENVIRONMENT_FILE,
    EXTENDED,
    LOCK_FILE,
    METRICS_FILE,
    SECTIONS_FILE,
    RunMismatchError,
    RunSpec,
    check_path,
    config_json,
    logged_steps,
    read_config,
    read_environment,
    read_json,
)

MAX_DIFFERENCES, MAX_CHARACTERS = 20, 300
"""Maximum numbers of differences in a message, and of characters in each."""


def check_folder(workdir: Path, config: TrainConfig, *, extend: bool = False) -> TrainConfig:
    """Checks that the folder is new, or has a run with this config. Writes nothing.

    Returns: the config, with the run's spelling of `init_from`.

    Args:
      workdir: the run's folder.
      config: the config as the user gave it.
      extend: whether the run may become longer than planned.

    Raises: RunMismatchError when the folder has a run with another config, with the differences, or with more steps;
      when it is not a run's folder, or has an average of runs; when the run's checkpoints were deleted; and for an
      invalid line in its files.
    """
    check_path(workdir)
    identity = config.identity()
    for text in (str(workdir), json.dumps(to_json(config), ensure_ascii=False)):
        refuse_undecoded(text)
    if (workdir / CONFIG_FILE).exists():
        if (workdir / ENVIRONMENT_FILE).exists() and "averaged" in read_environment(workdir):
            raise RunMismatchError(
                f"{workdir} has an average of runs, which cannot be trained further; train in another --workdir with "
                f"--init-from {workdir}"
            )
        before = config_json(workdir, typed=True)
        if config.data.few_lengths is None:  # the device decides it where a run starts
            identity["data"]["few_lengths"] = before["data"].get("few_lengths")
        earlier = before.get("init_from")
        if config.init_from and earlier and Path(config.init_from).resolve() == Path(earlier).resolve():
            identity["init_from"] = earlier
            config = dataclasses.replace(config, init_from=earlier)
        refuse_config_change(before, identity, workdir, extend=extend)
        trained = max(checkpoint_steps(workdir), default=0)
        if trained > config.total_steps:
            raise RunMismatchError(
                f"{workdir} has trained to step {trained}, but total_steps is {config.total_steps}; give at least "
                f"{trained}, or another --workdir"
            )
    elif workdir.is_dir():
        # A start that was killed at once has left an empty folder of checkpoints, and perhaps a processor.
        left = {LOCK_FILE, PROCESSOR_FILE} | ({CHECKPOINTS} if not any((workdir / CHECKPOINTS).glob("*")) else set())
        others = sorted({path.name for path in workdir.iterdir()} - left)
        if others:
            raise RunMismatchError(
                f"{workdir} has {others[0]} but no {CONFIG_FILE}, so it is not a jaxnlp run; give another --workdir"
            )
    saved = logged_steps(workdir / METRICS_FILE, "validation")
    logged_steps(workdir / SECTIONS_FILE)  # an error for broken lines, before anything is written
    # A run that was killed before its first save has an empty folder, and has logged one evaluation at most. A run that
    # was killed during the save has an unfinished checkpoint, and may have logged more.
    folder = workdir / CHECKPOINTS
    lost = not folder.is_dir() or (len(saved) > 1 and not any(path.is_dir() for path in folder.iterdir()))
    if saved and lost:
        raise RunMismatchError(
            f"{workdir} has metrics up to step {max(saved)} but no checkpoints: they were deleted or moved; restore "
            f"{CHECKPOINTS}, or give another --workdir to start over"
        )
    return config


def refuse_undecoded(text: str) -> None:
    """Raises RunMismatchError for a text that is not UTF-8, such as a file name, which a run's files cannot contain."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        near = text[max(error.start - 20, 0) : error.end + 20]
        raise RunMismatchError(
            f"{text[error.start]!r} in {near!r} is not a character of UTF-8; rename the file or folder"
        ) from error


def check_continuation(record: Record, run: RunSpec, workdir: Path) -> None:
    """Checks that a checkpoint has the processor and the data of the resumed run.

    Raises:
      RunMismatchError: when the data has changed, or total_steps was edited.
      RunError: when the run's config or processor was edited.
    """
    config, processor = read_run_files(workdir, record)
    planned, total_steps = record.identity.get("total_steps"), config["total_steps"]
    if planned not in (None, total_steps) and planned not in read_environment(workdir).get(EXTENDED, []):
        raise RunMismatchError(
            f"{workdir / CONFIG_FILE} was edited since the run was trained; undo the change: total_steps: {planned} -> "
            f"{total_steps}"
        )
    if json_digest(run.processor) != record.processor_digest:
        as_saved = json.loads(json.dumps(run.processor))  # a tuple is a list there
        changed = _listed(differences(processor, as_saved))
        raise _changed_data(record, run, workdir, f"{PROCESSOR_FILE} would differ:{changed}")
    refuse_data_change(record, run, workdir)


def check_ended(workdir: Path, config: TrainConfig) -> None:
    """Checks that an ended run has learned from the data that this config names.

    Raises:
      FileNotFoundError: when the data does not exist.
      RunMismatchError: when it is other data, or cannot be read; and as `read_config`.
    """
    held = read_config(workdir)
    record = read_checkpoint(workdir, "latest", lambda found: found)
    data = dataclasses.replace(held.data, **{name: getattr(config.data, name) for name in config.data.places()})
    processor = processor_from_json(read_json(workdir / PROCESSOR_FILE))
    with errors_as(RunMismatchError, f"the run in {workdir} has ended, and cannot read this data"):
        corpus = data.load(held.seed, processor)
    refuse_data_change(record, corpus, workdir)


def data_of(run: Path, config: TrainConfig, processor: Any, record: Record) -> Corpus:
    """The data of a run's folder, unchanged since its training.

    Raises:
      FileNotFoundError, DataError: when it cannot be read.
      RunMismatchError: when it is not that of the checkpoint with this record.
    """
    try:
        corpus = config.data.load(config.seed, processor)
    except FileNotFoundError as error:
        places = _places_in(str(error), config.data)
        if not places and "--data." in str(error):
            raise FileNotFoundError(f"{error}; only jaxnlp train has options of the data") from error
        if not places:
            raise
        raise FileNotFoundError(f"{error}; if it was moved, correct {places} in {run / CONFIG_FILE}") from error
    refuse_data_change(record, corpus, run)
    return corpus


def _places_in(message: str, data: DataConfig) -> str:
    """The fields with the user's file in a message; "" = not the user's."""
    if not data.needs.startswith("your"):
        return ""
    values = [(name, getattr(data, name)) for name in data.places() if getattr(data, name)]
    paths = [(name, path) for name, value in values for path in (value if isinstance(value, tuple) else (value,))]
    found = [name for name, path in paths if any(part in message for part in path.rpartition("=")[2].split(","))]
    return " or ".join(f"data.{name}" for name in dict.fromkeys(found))


def refuse_data_change(record: Record, data: Corpus | RunSpec, workdir: Path) -> None:
    """Raises RunMismatchError when a checkpoint was trained on other data."""
    if record.fingerprint != data.fingerprint:
        raise _changed_data(record, data, workdir)


def _changed_data(record: Record, data: Corpus | RunSpec, workdir: Path, *details: str) -> RunMismatchError:
    """The error for changed data, with both descriptions and further lines."""
    descriptions = [f"before: {record.description}", f"now: {data.description}"]
    if record.description == data.description:
        equal = "the numbers are equal; examples differ, or their order"
        descriptions = [f"before and now: {record.description}", equal]
    lines = "".join(f"\n  {line}" for part in (*descriptions, *details) for line in part.splitlines())
    return RunMismatchError(
        f"the data has changed since the run in {workdir} started; restore the data, or give another --workdir:{lines}"
    )


def refuse_config_change(
    before: dict[str, Any], identity: dict[str, Any], workdir: Path, *, extend: bool = False
) -> None:
    """Raises RunMismatchError, with the differences, when the run in a folder has a config of another identity.

    With `extend` the run may become longer, even if its learning rate depends on its length.
    """
    message = f"{workdir} holds a run with another config"
    if before.get("recipe") != identity.get("recipe"):  # most fields differ: a list of them would not help
        recipes = f"{before.get('recipe')}, not {identity.get('recipe')}"
        raise RunMismatchError(f"{message}, of the recipe {recipes}; give another --workdir")
    before = same_fields(before, identity)
    changed = identity_changes(before, identity, extended=extend)
    if changed and not identity_changes(before, identity, extended=True):
        message += (
            ". The learning rates of the steps so far depend on total_steps. --extend continues anyway, with "
            "the learning rates of the longer schedule for the remaining steps"
        )
    if changed:
        raise RunMismatchError(f"{message}; give another --workdir, or undo the change:{_listed(changed)}")


def _listed(changed: list[str]) -> str:
    """Differences, one a line, truncated; beyond the maximum only their number."""
    lines = "".join(f"\n  {_truncated(line)}" for line in changed[:MAX_DIFFERENCES])
    more = len(changed) - MAX_DIFFERENCES
    return lines + (f"\n  and {more} more" if more > 0 else "")


def _truncated(line: str) -> str:
    """A truncated line: a changed vocabulary would fill the screen."""
    return line if len(line) <= MAX_CHARACTERS else line[:MAX_CHARACTERS] + " ..."
