"""A run's folder and its files."""

import json
import os
import platform
from pathlib import Path
from typing import Any, NamedTuple

import jax

from jaxnlp.corpus import DataError, errors_as
from jaxnlp.saving.atomic_files import write_file
from jaxnlp.saving.checkpoint_reading import (
    CHECKPOINTS,
    CONFIG_FILE,
    PROCESSOR_FILE,
    DamagedCheckpointError,
    checkpoint_steps,
    read_record,
)
from jaxnlp.saving.serialization import (
    ConfigError,
    UntrustedError,
    from_json,
)
from train.config import TrainConfig
from train.logs.json_lines import Line, read_lines, read_object
from train.run.early_stopping import stops_early
from train.run.machine import commit, device_name, versions

ENVIRONMENT_FILE = "environment.json"
METRICS_FILE = "metrics.jsonl"
SECTIONS_FILE = "sections.jsonl"
REPORT_FILE = "report.html"
EXTENDED = "extended_from_total_steps"
"""Key in the environment: earlier values of total_steps of an extended run."""
AT_ONCE = "trained_at_once"
"""Key in the environment: the number of runs that one program trained, see `train.at_once`."""
TYPED_MODEL_FILE = "typed_model.json"
"""The model's config as the user gave it, if pretrained weights have changed it; resume uses it."""
LOCK_FILE = ".lock"
"""The lock file of the process that trains in the folder."""


class RunMismatchError(ValueError):
    """The folder has another run, or is not a run."""


class RunSpec(NamedTuple):
    """The facts that must not change on resume.

    Attributes:
      config: the config as JSON.
      identity: its fields that determine the numbers.
      processor: the processor as JSON.
      description: one line about the data.
      fingerprint: a digest of the data.
    """

    config: dict[str, Any]
    identity: dict[str, Any]
    processor: dict[str, Any]
    description: str
    fingerprint: str

    @property
    def facts(self) -> dict[str, Any]:
        """The facts that all processes of a run share, by their names in messages."""
        return self.config | {"processor": self.processor, "content of the data": self.fingerprint}


def writes_folder() -> bool:
    """Whether this process writes the run's folder and prints messages: only process 0 does."""
    return jax.process_index() == 0


def check_path(workdir: Path) -> None:
    """Raises RunMismatchError for a path that cannot be a run's folder."""
    if not workdir.parts:
        raise RunMismatchError("a run needs its own folder, not the current one; give its name with --workdir")
    for path in (workdir, *workdir.parents):
        if path.is_file():
            raise RunMismatchError(f"{path} is a file; give a directory with --workdir")
        if path.is_symlink() and not path.exists():
            raise RunMismatchError(
                f"{path} is a link to {path.readlink()}, which does not exist; give another --workdir"
            )


def create(workdir: Path, run: RunSpec, typed_model: Any = None) -> None:
    """Writes the config and the processor, after the existing checkpoints were read and checked.

    Args:
      workdir: the run's folder.
      run: its specification.
      typed_model: the model's config as the user gave it, as JSON, if pretrained weights have changed it.
    """
    if not writes_folder():
        return
    (workdir / CHECKPOINTS).mkdir(parents=True, exist_ok=True)
    if (workdir / CONFIG_FILE).exists() and (workdir / ENVIRONMENT_FILE).exists():
        before = config_json(workdir)["total_steps"]
        if "total_steps" in run.identity and before != run.config["total_steps"]:  # it was extended
            earlier = read_environment(workdir).get(EXTENDED, [])
            update_environment(workdir, **{EXTENDED: [*earlier, before]})
    if typed_model is not None:
        write_json(workdir / TYPED_MODEL_FILE, typed_model)
    write_json(workdir / PROCESSOR_FILE, run.processor)
    write_json(workdir / CONFIG_FILE, run.config)


def read_config(workdir: Path, *, typed: bool = False) -> TrainConfig:
    """Reads the config of a run; `typed`: as the user gave it, without the shape of a pretrained model.

    Raises: FileNotFoundError; ConfigError naming an invalid field.
    """
    path = workdir / CONFIG_FILE
    try:
        return from_json(config_json(workdir, typed=typed), TrainConfig)
    except UntrustedError as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    except ConfigError as error:
        raise ConfigError(f"{path} cannot be read; it may be of another version: {error}") from error


def check_held_out(workdir: Path, other: Path) -> None:
    """Raises DataError when another run was trained on examples that this run holds out for validation."""
    try:
        read_config(workdir).data.check_after(read_config(other).data)
    except DataError as error:
        raise DataError(
            f"{other} has learned from validation examples of {workdir}, so a score on them would be too good; give a "
            f"run that holds out the same examples ({error})"
        ) from error


def config_json(workdir: Path, *, typed: bool = False) -> dict[str, Any]:
    """Reads the config of a run as JSON; `typed`: see `read_config`.

    Raises: RunMismatchError for a file that is not valid JSON, or not a config.
    """
    path, given = workdir / CONFIG_FILE, workdir / TYPED_MODEL_FILE
    config = read_json(path)
    if not isinstance(config.get("data"), dict):
        raise RunMismatchError(
            f"{path} is not the config of a run: expected an object with the field data; restore the file, or give "
            "another --workdir"
        )
    return config | {"model": read_json(given)} if typed and given.is_file() else config


def read_environment(workdir: Path) -> dict[str, Any]:
    """Reads the environment of a run's latest start. Raises: FileNotFoundError."""
    path = workdir / ENVIRONMENT_FILE
    if not path.exists():
        raise FileNotFoundError(f"{path} is missing; restore it: it names the metrics of the run")
    return read_json(path)


def write_environment(workdir: Path, *, pretrained: str | None, **facts: Any) -> None:
    """Records the versions, the device and the command of this start, instead of an earlier one's.

    Args:
      workdir: the run's folder.
      pretrained: SHA-256 of the run's initial pretrained parameters; None = keep the first start's.
      facts: further entries.
    """
    if not writes_folder():
        return
    before = read_environment(workdir) if (workdir / ENVIRONMENT_FILE).exists() else {}
    if pretrained is None:
        pretrained = before.get("pretrained_sha256")
    facts = {name: before[name] for name in (EXTENDED, AT_ONCE) if name in before} | facts
    environment = {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "device": device_name(),
        "devices": jax.device_count(),
        "cpu_cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "malloc": os.environ.get("GLIBC_TUNABLES"),
        "pretrained_sha256": pretrained,
        "versions": versions(),
        "commit": commit(),
        **facts,
    }
    write_json(workdir / ENVIRONMENT_FILE, environment)


def update_environment(workdir: Path, **facts: Any) -> None:
    """Adds facts to the recorded environment."""
    if writes_folder():
        write_json(workdir / ENVIRONMENT_FILE, read_environment(workdir) | facts)


def write_json(path: Path, value: Any) -> None:
    """Writes a JSON file atomically."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def keep_lines_until(path: Path, step: int) -> None:
    """Removes the lines of a JSON-lines file after a step.

    Raises: RunMismatchError naming a line that is not an object with a step; the file is then unchanged.
    """
    if path.exists():
        kept = [line.text for line in _lines(path) if line.row["step"] <= step]
        write_file(path, b"".join(text + b"\n" for text in kept))


def logged_steps(path: Path, split: str | None = None) -> list[int]:
    """The steps of a JSON-lines file's rows, or of one split's; [] without the file.

    Raises: RunMismatchError, like `keep_lines_until`.
    """
    return [line.row["step"] for line in _lines(path) if split is None or line.row.get("split") == split]


def learning_rate(path: Path, step: int) -> float | None:
    """The learning rate of the last logged step up to this one; None = no row has one.

    Raises: RunMismatchError, like `keep_lines_until`.
    """
    rows = (line.row for line in _lines(path))
    return max(
        ((row["step"], row["learning_rate"]) for row in rows if "learning_rate" in row and row["step"] <= step),
        default=(0, None),
    )[1]


def has_ended(workdir: Path, config: TrainConfig) -> bool:
    """Whether the run has a checkpoint of its last step, or has stopped early."""
    step = max(checkpoint_steps(workdir), default=0)
    if not step or step >= config.total_steps or config.stop_after is None:
        return 0 < config.total_steps <= step
    try:
        return stops_early(read_record(workdir, step).scores, config.stop_after)
    except DamagedCheckpointError:  # the next start moves it, and trains its steps again
        return False


def _lines(path: Path) -> list[Line]:
    with errors_as(RunMismatchError):
        return read_lines(path, step=int)


def read_json(path: Path) -> dict[str, Any]:
    """Reads the object in a JSON file of the run. Raises: RunMismatchError naming the invalid file."""
    with errors_as(RunMismatchError):
        return read_object(path)


def write_text(path: Path, text: str) -> None:
    """Writes a UTF-8 file atomically, and creates its parent directories."""
    write_file(path, text.encode("utf-8"))
