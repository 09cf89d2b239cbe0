"""Several processes that train one run, and find each other.

Each process runs the same command, on the same folder. JAX joins them: `jax.devices()` are then the devices of all.
Process 0 is the coordinator; it also writes logs, reports and predictions. All write checkpoints.
"""

import contextlib
import dataclasses
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar, cast

import jax
import numpy as np
from jax._src.clusters import ClusterEnv  # JAX has no public name for what it finds out about a cluster
from jax.experimental import multihost_utils

from jaxnlp.config import Config, Count, Natural
from jaxnlp.saving.serialization import ConfigError
from train.run.lock import absent, numbered
from train.run.watch import watching

T = TypeVar("T")
ADDRESS, PROCESSES, PROCESS = "JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID"
"""Environment variables instead of the options."""
SECONDS_TO_CONNECT = 120
SECONDS_BETWEEN_TRIES = 0.5
SECONDS_TO_NAME = 3
SECONDS_OF_SILENCE = 30
"""JAX takes a process that is silent for so long for dead, and ends the others; `train.run.watch` names it before."""


@dataclasses.dataclass(frozen=True)
class ProcessOptions(Config):
    """Options of a run of several processes."""

    distributed: bool = False
    """Train with several processes, each of which runs this command. SLURM, Open MPI, Kubernetes and TPU pods need no
    further option."""
    coordinator: str | None = None
    """HOST:PORT of process 0, if the cluster does not provide it; None = $JAX_COORDINATOR_ADDRESS."""
    num_processes: Count | None = None
    """Number of processes, if the cluster does not provide it; None = $JAX_NUM_PROCESSES."""
    process_id: Natural | None = None
    """Index of this process, from 0, if the cluster does not provide it; None = $JAX_PROCESS_ID."""

    def __post_init__(self):
        super().__post_init__()
        fields = ("coordinator", "num_processes", "process_id")
        self.only_if(self.distributed, "several processes, --distributed", *fields)


@contextlib.contextmanager
def connected(
    options: ProcessOptions, workdir: Path | None = None, *, seconds: int = SECONDS_TO_CONNECT
) -> Iterator[None]:
    """Connects this process to the others, before JAX looks for devices; at the end it waits for them.

    Args:
      options: of this process.
      workdir: the run's folder; None = two processes with one number are not named.
      seconds: to wait for the coordinator.

    Raises: ConfigError when the processes are not described, or the coordinator does not answer; RunMismatchError when
      another process has the number of this one.
    """
    if not options.distributed:
        yield
        return
    address, count, number = _detected(*_described(options), seconds)
    with contextlib.nullcontext() if workdir is None else numbered(workdir, number, count, seconds=seconds):
        with _naming_absent(workdir, count, seconds) if number == 0 else contextlib.nullcontext():
            _join(address, count, number, seconds)
        with watching():
            yield  # after an error, JAX says goodbye when Python ends, so that the error is printed before
            wait_for_all("the run has ended")
        jax.distributed.shutdown()


@contextlib.contextmanager
def _naming_absent(workdir: Path | None, count: int, seconds: int) -> Iterator[None]:
    """Names the absent processes, shortly before JAX aborts the others after so many seconds."""

    def name() -> None:
        numbers = [] if workdir is None else absent(workdir, count)
        if numbers:
            text = ", ".join(map(str, numbers))
            print(f"not there, of processes 0 to {count - 1}: {text}; JAX ends the others", file=sys.stderr, flush=True)

    timer = threading.Timer(max(0, seconds - SECONDS_TO_NAME), name)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _join(address: str, count: int, number: int, seconds: int) -> None:
    """Joins the other processes."""
    if number:
        _wait_for(address, seconds)
    else:
        others = "1 other process" if count == 2 else f"{count - 1} other processes"
        print(f"process 0 waits at {address} for {others}, for at most {seconds} s", file=sys.stderr, flush=True)
    try:
        jax.distributed.initialize(
            address,
            count,
            number,
            initialization_timeout=seconds,
            heartbeat_timeout_seconds=SECONDS_OF_SILENCE,
            shutdown_timeout_seconds=SECONDS_OF_SILENCE,
        )
    except RuntimeError as error:  # such as a port that another program has
        raise ConfigError(f"process {number} of {count} cannot join the others at {address}: {error}") from error


def wait_for_all(what: str) -> None:
    """Waits until every process is here; `what` names the place."""
    if jax.process_count() > 1:
        multihost_utils.sync_global_devices(what)


def of_process_0(numbers: Sequence[int]) -> list[int]:
    """The numbers of process 0, below 2^31, on every process."""
    if jax.process_count() == 1:
        return list(numbers)
    count = int(multihost_utils.broadcast_one_to_all(np.int32(len(numbers))))
    mine = np.array([*numbers, *[0] * count][:count], np.int32)
    return np.asarray(multihost_utils.broadcast_one_to_all(mine)).tolist()


def by_all(act: Callable[[], T], *refusals: type[Exception]) -> T:
    """The result of `act()`, which every process calls. If one process refuses, all do.

    Args:
      act: the function.
      refusals: the types of its refusals; with several processes it raises no other errors.

    Raises: the refusal of this process; if only others refused, one of the first type with the number of the first.
    """
    result, refused = None, None
    try:
        result = act()
    except refusals as error:
        refused = error
    if jax.process_count() > 1:
        each = np.asarray(multihost_utils.process_allgather(np.array(refused is not None)))
        if refused is None and each.any():
            refused = refusals[0](f"process {int(each.argmax())} refused it; its output says why")
    if refused is not None:
        raise refused
    return cast(T, result)


def _described(options: ProcessOptions) -> tuple[str | None, int | None, int | None]:
    """Address of the coordinator, number of processes, index of this one; None = detected by JAX."""
    address = options.coordinator or os.environ.get(ADDRESS)
    count, number = (
        _number(name) if given is None else given
        for given, name in ((options.num_processes, PROCESSES), (options.process_id, PROCESS))
    )
    host, _, port = (address or "").rpartition(":")
    if address is not None and not (host and port.isdecimal() and len(port) < 6 and int(port) < 2**16):
        raise ConfigError(f"the coordinator's address has the form HOST:PORT, got {address!r}")
    if count is not None and number is not None and number >= count:
        raise ConfigError(f"processes are numbered from 0, so process {number} of {count} does not exist")
    return address, count, number


def _detected(address: str | None, count: int | None, number: int | None, seconds: int) -> tuple[str, int, int]:
    """Address, number of processes and index of this one, with JAX's detection of the cluster.

    It comes before JAX joins, which aborts the process if nothing answers at the address.
    """
    try:
        address, count, number, _ = ClusterEnv.auto_detect_unset_distributed_params(
            address, count, number, None, None, seconds
        )
        missing = "it is no cluster that JAX knows"
    except (RuntimeError, ValueError, KeyError) as error:
        missing = str(error)
    if address is None or count is None or number is None:
        raise ConfigError(
            f"JAX cannot find the other processes ({missing}); give --coordinator HOST:PORT --num-processes N "
            f"--process-id I, or set {ADDRESS}, {PROCESSES} and {PROCESS}"
        )
    return address, count, number


def _number(name: str) -> int | None:
    text = os.environ.get(name)
    if text is not None and not (text.isdecimal() and len(text) < 10):
        raise ConfigError(f"${name} must be a number, got {text!r}")
    return None if text is None else int(text)


def _wait_for(address: str, seconds: float) -> None:
    """Waits until something listens at the address: otherwise JAX would abort the process."""
    host, _, port = address.rpartition(":")
    end = time.monotonic() + seconds
    while True:
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=max(0.1, end - time.monotonic())).close()
            return
        except OSError as error:
            if time.monotonic() > end:
                raise ConfigError(
                    f"no coordinator answers at {address} after {seconds} s ({error.strerror or error}); start process "
                    "0 there, or correct --coordinator"
                ) from error
            time.sleep(SECONDS_BETWEEN_TRIES)
