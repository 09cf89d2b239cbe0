"""The faults: what happens to a run at a moment, and what may follow."""

import contextlib
import dataclasses
import os
import resource
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.torture.families import FAMILIES, PAIR
from tests.torture.rounds import FailedError, Round, ending, saved_steps
from tests.torture.starts import Start

ALONE = tuple(family for family in FAMILIES if family != PAIR)
WHILE_TRAINING = ("start", "step", "evaluation", "save", "report")
ALWAYS = (*WHILE_TRAINING, "export")
DISK = 64 * 2**20
Strike = Callable[[Round, Start], None]


def nothing(*_: Any) -> None:
    """Does nothing."""


@contextlib.contextmanager
def plain(round_: Round) -> Iterator[None]:
    """The folder as it is."""
    yield


@dataclasses.dataclass(frozen=True)
class Fault:
    """A fault.

    Attributes:
      strike: what happens at the moment.
      first: how the first start may end.
      moments: when it may happen.
      families: to which runs.
      mend: before the command is repeated.
      at_rest: it happens while no process runs, so that the repetition may be refused; not after `restore`.
      restore: undoes the damage.
      place: a context in which the folder is as the fault needs it.
      mounts: whether it needs a folder of its own to mount.
    """

    strike: Strike
    first: tuple[str, ...]
    moments: tuple[str, ...] = ALWAYS
    families: tuple[str, ...] = ALONE
    mend: Callable[[Round], None] = nothing
    at_rest: bool = False
    restore: Callable[[Round], None] = nothing
    place: Callable[[Round], contextlib.AbstractContextManager[None]] = plain
    mounts: bool = False


def sends(number: int) -> Strike:
    """Sends a signal."""
    return lambda round_, start: start.send(number)


def stops_for_a_while(round_: Round, start: Start) -> None:
    """Stops the process, and lets it go on."""
    start.send(signal.SIGSTOP)
    time.sleep(round_.draw.uniform(0.5, 2))
    start.send(signal.SIGCONT)


def second_writer(round_: Round, start: Start) -> None:
    """A second start in the same folder is refused, or is the one that trains, or comes when all is done."""
    second = round_.start()
    endings = [ending(second), ending(start)]
    comes_later = endings == ["done", "done"] and "the run is finished" in second.output
    if sorted(endings) != ["done", "refused"] and not comes_later:
        raise FailedError(f"two writers: {endings}")


def moves_folder(round_: Round, start: Start) -> None:
    """Gives the run's folder another name; later starts are told the new one."""
    moved = round_.workdir.with_name("moved")
    round_.workdir.rename(moved)
    round_.workdir = moved


def clock_back(round_: Round, start: Start) -> None:
    """Sets the clock back by a day, for this process and for later starts."""
    assert round_.clock is not None
    round_.clock.touch()


@contextlib.contextmanager
def with_clock(round_: Round) -> Iterator[None]:
    """Starts read the file `clock`."""
    round_.clock, round_.whole = round_.place / "clock", False
    yield


def limits_memory(round_: Round, start: Start) -> None:
    """The process gets at most a few megabytes more."""
    with contextlib.suppress(OSError, IndexError):
        pages = int(Path(f"/proc/{start.pid}/statm").read_text().split()[0])
        most = pages * resource.getpagesize() + round_.draw.choice([0, 2**20, 2**24, 2**26])
        resource.prlimit(start.pid, resource.RLIMIT_AS, (most, most))


def kills_worker(round_: Round, start: Start) -> None:
    """Kills the processes that make batches."""
    for pid in start.children():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@contextlib.contextmanager
def small_disk(round_: Round) -> Iterator[None]:
    """The run's folder is on a disk of a few megabytes."""
    mount("-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(round_.disk))
    with unmounted(round_):
        yield


@contextlib.contextmanager
def unmounted(round_: Round) -> Iterator[None]:
    """At its end, nothing is mounted on the run's disk."""
    try:
        yield
    finally:
        while os.path.ismount(round_.disk):
            unmount(round_)


def mount(*words: str) -> None:
    """Mounts something. A folder in which a file is being written cannot become read-only yet: it is tried again."""
    end = time.monotonic() + 10
    while subprocess.run(["mount", *words], check=time.monotonic() > end, capture_output=True).returncode:
        time.sleep(0.02)


def unmount(round_: Round) -> None:
    """Removes what was mounted last on the run's disk."""
    subprocess.run(["umount", "--lazy", str(round_.disk)], check=True)


def fills_disk(round_: Round, start: Start) -> None:
    """Fills the disk up to a few bytes."""
    left = round_.draw.choice([0, 0, 20_000, 100_000, 300_000])
    with contextlib.suppress(OSError), (round_.disk / "filler").open("wb", buffering=0) as file:
        while (free := shutil.disk_usage(round_.disk).free) > left:
            file.write(bytes(min(max(free - left, 1), 2**20)))


def frees_disk(round_: Round) -> None:
    """Makes room again."""
    (round_.disk / "filler").unlink()


def makes_read_only(round_: Round, start: Start) -> None:
    """No file can be opened for writing below the run's parent any more."""
    mount("--bind", str(round_.disk), str(round_.disk))
    mount("-o", "remount,bind,ro", str(round_.disk))


def damages(kind: str, place: str) -> Strike:
    """Damages a file of a run whose process was killed.

    Args:
      kind: flipped byte, truncated file, deleted file, or half-removed folder.
      place: newest or oldest, of the checkpoints; run = a file of the run's folder itself.
    """

    def strike(round_: Round, start: Start | None) -> None:
        if start is not None:
            start.kill()
        shutil.copytree(round_.workdir, round_.place / "before")
        if place == "run":
            files = sorted(path for path in round_.workdir.iterdir() if path.suffix in (".json", ".jsonl"))
        else:
            step = saved_steps(round_.workdir)[-1 if place == "newest" else 0]
            folder = round_.workdir / "checkpoints" / str(step)
            files = sorted(path for path in folder.rglob("*") if path.is_file())
        file = round_.draw.choice(files)
        round_.damaged = file.relative_to(round_.workdir)
        held = bytearray(file.read_bytes())
        at = round_.draw.randrange(max(len(held), 1))
        if kind == "half-removed folder":
            for each in round_.draw.sample(files, max(1, len(files) // 2)):
                each.unlink()
        elif kind == "deleted file":
            file.unlink()
        elif kind == "truncated file":
            file.write_bytes(held[:at])
        elif held:
            held[at] ^= 1 << round_.draw.randrange(8)
            file.write_bytes(held)

    return strike


def restores(round_: Round) -> None:
    """Puts the folder back as it was before the damage."""
    shutil.rmtree(round_.workdir)
    shutil.copytree(round_.place / "before", round_.workdir)
    shutil.rmtree(round_.exported, ignore_errors=True)


def damage(kind: str, place: str) -> Fault:
    """The fault of `damages`."""
    moments = ("saved",) if place == "run" else ("saved", "saved", "export")
    endings = ("killed", "done", "refused")
    return Fault(damages(kind, place), endings, moments, FAMILIES, at_rest=True, restore=restores)


FAULTS = {
    "SIGKILL": Fault(sends(signal.SIGKILL), ("killed",), families=FAMILIES),
    "SIGTERM": Fault(sends(signal.SIGTERM), ("stopped", "killed", "done"), families=FAMILIES),
    "SIGHUP": Fault(sends(signal.SIGHUP), ("stopped", "killed", "done"), families=FAMILIES),
    "SIGINT": Fault(sends(signal.SIGINT), ("stopped", "killed", "done"), families=FAMILIES),
    "SIGSTOP for a while": Fault(stops_for_a_while, ("done",), families=FAMILIES),
    "full disk": Fault(fills_disk, ("refused", "done"), mend=frees_disk, place=small_disk, mounts=True),
    "read-only folder": Fault(makes_read_only, ("refused", "done"), mend=unmount, place=unmounted, mounts=True),
    "folder moved": Fault(moves_folder, ("refused", "done"), moments=WHILE_TRAINING[1:]),
    "second writer": Fault(second_writer, ("done", "refused"), moments=WHILE_TRAINING),
    "clock a day back": Fault(clock_back, ("done",), moments=WHILE_TRAINING, place=with_clock),
    "memory limit": Fault(limits_memory, ("done", "refused", "killed")),
    "killed data worker": Fault(kills_worker, ("done", "refused"), moments=("step", "save"), families=("gpt",)),
    **{
        f"{kind}, {place} checkpoint": damage(kind, place)
        for kind in ("flipped byte", "truncated file", "deleted file", "half-removed folder")
        for place in ("newest", "oldest")
    },
    "truncated file of the run": damage("truncated file", "run"),
    "deleted file of the run": damage("deleted file", "run"),
}
