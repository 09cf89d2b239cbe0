"""A run's folder: what is written when it starts, and what may continue in it."""

import importlib.metadata
import json
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import jax

from data import Corpus
from jaxnlp.files import write_file
from jaxnlp.ops.matmul import operand_dtype
from jaxnlp.runs import CHECKPOINTS, CONFIG_FILE, VOCABULARY_FILE
from jaxnlp.serialization import ConfigError, differences, from_json, to_json
from train.config import TrainConfig

ENVIRONMENT_FILE = "environment.json"
DATA_FILE = "data.json"
METRICS_FILE = "metrics.jsonl"
BLOCKS_FILE = "blocks.jsonl"
ANSWERS_FILE = "answers.json"
WORDS_FILE = "words.json"
PACKAGES = ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "grain", "numpy")


class RunMismatchError(ValueError):
    """A folder that holds another run."""


def check(workdir: Path, config: TrainConfig) -> None:
    """Passes for a new folder and for one that holds a run of this config.

    Raises:
      RunMismatchError: when it holds a run of another config; the message shows each difference.
    """
    files = [path for path in (workdir, *workdir.parents) if path.is_file()]
    if files:
        raise RunMismatchError(f"{files[0]} is a file; give a folder with --workdir")
    path = workdir / CONFIG_FILE
    if path.exists():
        held = with_defaults(_read_object(path))
        refuse_change(held, to_json(config), f"{workdir} holds a run of another config")
        return
    strangers = [name for name in (METRICS_FILE, BLOCKS_FILE, CHECKPOINTS) if (workdir / name).exists()]
    if strangers:
        raise RunMismatchError(
            f"{workdir} has {strangers[0]} but no {CONFIG_FILE}: no run of ours; give another --workdir"
        )


def claim(workdir: Path, config: TrainConfig, corpus: Corpus) -> None:
    """Makes the folder this run's: config, vocabulary, and what tells the data from other data.

    Raises:
      RunMismatchError: when it holds a run of another config, or of the same on data that has changed since.
    """
    check(workdir, config)
    check_data(workdir, corpus)
    workdir.mkdir(parents=True, exist_ok=True)
    write_text(workdir / VOCABULARY_FILE, corpus.vocabulary.to_json())
    write_json(workdir / DATA_FILE, _identity(corpus))
    write_json(workdir / CONFIG_FILE, to_json(config))


def check_data(workdir: Path, corpus: Corpus) -> None:
    """Raises RunMismatchError when a run's data is no longer what it began with."""
    path = workdir / DATA_FILE
    if path.exists():
        refuse_change(_read_object(path), _identity(corpus), f"the data has changed since the run in {workdir} began")


def refuse_change(held: Any, wanted: Any, message: str) -> None:
    """Raises RunMismatchError with the message, a remedy and each difference, when there are differences."""
    changed = differences(held, wanted)
    if changed:
        lines = "".join(f"\n  {line}" for line in changed)
        raise RunMismatchError(f"{message}; give another --workdir, or undo the change:{lines}")


def _identity(corpus: Corpus) -> dict[str, str]:
    return {"description": corpus.description, "fingerprint": corpus.fingerprint}


def with_defaults(held: Any) -> Any:
    """A saved config with the fields that configs have got since; as it is where it no longer fits."""
    try:
        return to_json(from_json(held, TrainConfig, packages=CONFIG_PACKAGES))
    except ConfigError:
        return held


CONFIG_PACKAGES = ("jaxnlp", "data", "train")
"""Whose dataclasses a run's config may name."""


def read_config(workdir: Path) -> TrainConfig:
    """The config of a run's folder. Raises: FileNotFoundError, or ConfigError naming the field that does not fit."""
    return from_json(_read_object(workdir / CONFIG_FILE), TrainConfig, packages=CONFIG_PACKAGES)


def write_environment(
    workdir: Path, *, parameters: int, parallel: str, command: str | None, pretrained: str | None = None
) -> None:
    """Records versions, device and command of this start; a continued run records its newest start.

    What a model's pretrained parameters were, by their digest, stays as the first start has found it.
    """
    if pretrained is None and (workdir / ENVIRONMENT_FILE).exists():
        pretrained = _read_object(workdir / ENVIRONMENT_FILE).get("pretrained_sha256")
    environment = {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "device": device_name(),
        "devices": jax.local_device_count(),
        "cpu_cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "matmul_dtype_auto": operand_dtype("auto"),
        "malloc": os.environ.get("GLIBC_TUNABLES"),
        "parallel": parallel,
        "parameters": parameters,
        "pretrained_sha256": pretrained,
        "versions": versions(),
        "commit": commit(),
        "command": command,
    }
    write_json(workdir / ENVIRONMENT_FILE, environment)


def note(workdir: Path, **facts: Any) -> None:
    """Adds facts to the environment's record."""
    path = workdir / ENVIRONMENT_FILE
    write_json(path, _read_object(path) | facts)


def versions() -> dict[str, str]:
    """Of the packages that decide a run's numbers."""
    return {name: importlib.metadata.version(name) for name in PACKAGES}


def commit() -> str | None:
    """The checkout's commit, with `-dirty` where its files differ; None outside a git checkout."""
    git = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        return subprocess.run(git, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def device_name() -> str:
    """The accelerator's name, or the processor's."""
    device = jax.local_devices()[0]
    if device.platform != "cpu":
        return device.device_kind
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def write_json(path: Path, value: Any) -> None:
    """Writes a JSON file, whole or not at all."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def keep_lines_until(path: Path, step: int) -> None:
    """Drops the lines of a JSON-lines file that a run wrote after the checkpoint it continues from."""
    if not path.exists():
        return
    # Bytes split at line feeds alone; a text may hold other characters that str.splitlines() splits at.
    lines = path.read_bytes().splitlines(keepends=True)
    kept = []
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
        except ValueError as error:
            if number == len(lines):
                break  # half-written when the process died
            raise RunMismatchError(f"{path}, line {number}: not JSON ({error}); remove the line to continue") from error
        if row["step"] <= step:
            kept.append(line.decode().rstrip("\n") + "\n")
    write_text(path, "".join(kept))


def _read_object(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise RunMismatchError(f"{path}, line {error.lineno}: not JSON ({error.msg})") from error


def write_text(path: Path, text: str) -> None:
    """Writes a UTF-8 file, whole or not at all, and the folders that it lies in."""
    write_file(path, text.encode("utf-8"))
