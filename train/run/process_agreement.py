"""The facts that processes must share before they train: otherwise they would hang, or train something else."""

import hashlib
import json
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from train.run.folder import RunMismatchError
from train.run.processes import by_all, of_process_0, wait_for_all

LIMIT = 2**31
"""Upper bound on numbers that processes send each other."""


def require_agreement(facts: Mapping[str, Any]) -> None:
    """Refuses processes with different facts.

    Args: facts: JSON values, by name; each process has the same names.

    Raises: RunMismatchError in every process, naming the first process and fact that differ from process 0.
    """
    if jax.process_count() == 1:
        return
    mine = np.array([_digest(value) for value in facts.values()], np.uint32)
    each = np.asarray(multihost_utils.process_allgather(mine)).reshape(jax.process_count(), len(facts))
    differs = np.argwhere(each != each[0])
    if len(differs):
        process, fact = differs[0]
        raise RunMismatchError(
            f"process {process} has another {[*facts][fact]} than process 0; start all processes with the same "
            "command, the same data and the same versions"
        )


def require_shared_folder(folder: Path) -> None:
    """Refuses a folder that not all processes share, or that one cannot write to.

    Raises: OSError, RunMismatchError in every process.
    """
    if jax.process_count() == 1:
        return
    (number,) = of_process_0([secrets.randbelow(LIMIT)])
    # New names: a network disk may remember for a while that a file was not there.
    files = [folder / f".process-{process}-{number}" for process in range(jax.process_count())]
    mine = files[jax.process_index()]
    try:
        by_all(lambda: _touch(mine), OSError, RunMismatchError)
        by_all(lambda: _require(files, folder), RunMismatchError)
    finally:
        mine.unlink(missing_ok=True)
    wait_for_all("the files are removed")


def _touch(file: Path) -> None:
    if not file.parent.is_dir():
        raise RunMismatchError(_not_shared(file.parent, "this folder"))
    file.touch()


def _require(files: list[Path], folder: Path) -> None:
    missing = [process for process, file in enumerate(files) if not file.exists()]
    if missing:
        raise RunMismatchError(_not_shared(folder, f"what process {missing[0]} writes there"))


def _not_shared(folder: Path, what: str) -> str:
    return (
        f"{folder.absolute()}: process {jax.process_index()} does not see {what}; give a --workdir on a disk that all "
        "processes share"
    )


def _digest(value: Any) -> int:
    text = json.dumps(value, sort_keys=True, default=str)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest())
