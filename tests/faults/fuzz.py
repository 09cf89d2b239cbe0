"""Readers of files, fed with changed files: each is read, or refused by an error of ours that names it.

    python -m tests.faults.fuzz --seconds 600 [--match csv] [--json FILE] [--finds FOLDER]

Inputs are made from valid files, from inputs that were read, and from those whose error had a new message: so the
fuzzer gets deeper into a reader without a look at its coverage. A find is any other error, more CPU time than the
reader may take, more than `MEMORY`, and whatever the audit hook sees: a file that is written elsewhere, a process, a
connection, code that is compiled from a file, a function that a pickle names.
"""

import argparse
import collections
import contextlib
import json
import logging
import math
import os
import random
import re
import resource
import signal
import socket
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.faults.mutations import mutated
from tests.faults.readers import Reader, readers_of

MEMORY = 3 * 2**30
"""Bytes of address space that a reader may take beyond those of the imports."""
MOST_KEPT, MOST_BYTES = 400, 2**20
"""Inputs of a reader from which others are made, and the bytes of each."""
LARGE = 2**18
"""Bytes for which a reader may take as long again."""
OURS = ("jaxnlp", "data", "train")
FORBIDDEN = re.compile(
    r"os\.(system|exec|posix_spawn|spawn|fork|forkpty|kill|chmod|chown|putenv|setxattr)|subprocess\.|pty\.|socket\.|"
    r"pickle\.find_class|ctypes\.|ftplib|smtplib|urllib|webbrowser|shutil\.(rmtree|move|chown)|code\.__new__"
)
"""Audit events that no reader needs."""


class Slow(BaseException):
    """A reader has taken more CPU time than it may."""


class Watch:
    """An audit hook that notes what a reader must not do. Args: folders: it may write there."""

    def __init__(self, *folders: Path):
        self.seen: list[str] = []
        self.active = False
        self._folders = tuple(map(str, folders))
        sys.addaudithook(self._hook)

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.active:
            return
        inside = event == "socket.__new__" and arguments[1] == socket.AF_UNIX  # asyncio wakes its loop by one
        if FORBIDDEN.match(event) and event != "ctypes.dlsym" and not inside:
            self.seen.append(f"{event} {arguments!r:.200}")
        elif event == "open":
            path, mode, flags = arguments
            writes = (isinstance(mode, str) and set(mode) & set("wax+")) or (
                isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
            )
            if writes and not isinstance(path, int) and not os.fsdecode(path).startswith((*self._folders, "/dev/")):
                self.seen.append(f"open {path!r} for writing")
        elif event in ("os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.symlink", "os.link", "os.truncate"):
            paths = [os.fsdecode(one) for one in arguments if isinstance(one, str | bytes)]
            if paths and not paths[-1].startswith(self._folders):
                self.seen.append(f"{event} {paths}")


def is_ours(error: BaseException, path: Path) -> bool:
    """Whether an error is one that a program prints as a line, and says which file it is about."""
    if isinstance(error, FileNotFoundError | IsADirectoryError | PermissionError):
        return True
    if not isinstance(error, ValueError):
        return False
    named = str(path.parent) in str(error) or path.name in str(error)
    return named or type(error).__module__.split(".")[0] in OURS


class Fuzzer:
    """The inputs of a reader so far.

    Args:
      reader: it.
      folder: where files are written.
      watch: the audit hook.
      seed: decides the inputs.
      files: their kind, for the table.
    """

    def __init__(self, reader: Reader, folder: Path, watch: Watch, seed: int, files: str = "plain"):
        self.reader, self._watch, self._seed, self._files = reader, watch, seed, files
        where = reader.folder or folder / re.sub(r"\W+", "_", reader.name)
        self.path = where / reader.file
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._whole = list(reader.seeds)
        self._broken = list(reader.seeds)
        self._outcomes: set[str] = set()
        self.counts: collections.Counter[str] = collections.Counter()
        self.finds: dict[str, tuple[str, bytes]] = {}
        self.cpu, self.slowest = 0.0, 0.0
        for content in reader.seeds:
            self.outcome(content)

    def run(self, seconds: float = math.inf, inputs: float = math.inf) -> None:
        """Makes and reads inputs for some seconds, or some inputs."""
        self._seed += 1
        generator, end = random.Random(f"{self.reader.name} {self._seed}"), time.monotonic() + seconds
        last = self.counts.total() + inputs
        while time.monotonic() < end and self.counts.total() < last:
            for _ in range(10):
                kept = self._whole if generator.random() < 0.7 else self._broken
                content = mutated(generator.choice(kept), kept, generator)
                if len(content) < MOST_BYTES:
                    kept = self._broken
                    read = self.counts["read"]
                    new = self.outcome(content)
                    if self.counts["read"] > read and generator.random() < 0.1:
                        new, kept = True, self._whole
                    if new and len(kept) < MOST_KEPT:
                        kept.append(content)
                    elif new:
                        kept[generator.randrange(len(self.reader.seeds), MOST_KEPT)] = content

    def outcome(self, content: bytes) -> bool:
        """Reads an input, and notes what happens. Returns: whether this outcome is new."""
        self.path.write_bytes(content)
        self._watch.seen.clear()
        allowed = self.reader.seconds * (1 + len(content) / LARGE)
        signal.setitimer(signal.ITIMER_PROF, allowed)
        started = time.process_time()
        kind, text, trace = "read", "", ""
        try:
            self._watch.active = True
            self.reader.read(self.path)
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
            kind = "refused" if is_ours(error, self.path) else "find"
            trace = "" if kind == "refused" else traceback.format_exc()
        except Slow:
            kind, text, trace = "find", f"more than {allowed:.2g} s", traceback.format_exc()
        except BaseException as error:  # a panic of a library in Rust
            if isinstance(error, KeyboardInterrupt):
                raise
            kind, text, trace = "find", f"{type(error).__name__}: {error}", traceback.format_exc()
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            self._watch.active = False
        spent = time.process_time() - started
        self.cpu, self.slowest = self.cpu + spent, max(self.slowest, spent)
        if self._watch.seen:
            kind, text, trace = "find", self._watch.seen[0], "\n".join(self._watch.seen[:5])
        self.counts[kind] += 1
        signature = kind + re.sub(r"\d+|'[^']*'|\"[^\"]*\"|0x\w+", "#", text.replace(str(self.path.parent), ""))[:90]
        if kind == "find" and signature not in self.finds and len(self.finds) < 40:
            self.finds[signature] = (f"{text}\n{trace}", content)
            print(f"FIND {self.reader.name}: {text[:300]}\n" + "\n".join(trace.strip().splitlines()[-6:]), flush=True)
        new = signature not in self._outcomes
        self._outcomes.add(signature)
        return new

    def result(self) -> dict[str, Any]:
        """The counts, for the table."""
        return {
            "kind": "fuzz",
            "files": self._files,
            "reader": self.reader.name,
            "inputs": self.counts.total(),
            "read": self.counts["read"],
            "refused": self.counts["refused"],
            "finds": len(self.finds),
            "messages": len(self._outcomes),
            "cpu_seconds": round(self.cpu, 1),
            "slowest_seconds": round(self.slowest, 3),
        }


def _stop(*_: Any) -> None:
    raise Slow


@contextlib.contextmanager
def limits(memory: int | None = MEMORY) -> Iterator[None]:
    """Limits of time, and of memory if it is given; no warnings."""
    handler = signal.signal(signal.SIGPROF, _stop)
    logging.disable(logging.CRITICAL)
    before = resource.getrlimit(resource.RLIMIT_AS)
    if memory is not None:
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + memory, before[1]))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
        logging.disable(logging.NOTSET)
        signal.signal(signal.SIGPROF, handler)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=60, help="for all readers together")
    parser.add_argument("--match", default="", help="only readers whose name fits this pattern")
    parser.add_argument("--kinds", nargs="*", default=["plain", "folders"], help="plain, folders, run")
    parser.add_argument("--run", type=Path, help="folder of a small run, for the kind run")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="write the counts here, again after each round")
    parser.add_argument("--finds", type=Path, help="write the inputs of finds here")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as name:
        folder = Path(name)
        os.environ |= {"HF_HUB_OFFLINE": "1", "JAXNLP_CACHE": str(folder / "cache")}
        readers = readers_of(given.kinds, folder, given.run)
        readers = [(kind, reader) for kind, reader in readers if re.search(given.match, reader.name)]
        watch, end = Watch(folder, Path(tempfile.gettempdir())), time.monotonic() + given.seconds
        with limits():
            fuzzers = [Fuzzer(reader, folder, watch, given.seed * 10_000, kind) for kind, reader in readers]
            broken = [one.reader.name for one in fuzzers if not one.counts["read"]]
            if broken:
                print("no seed is read:", ", ".join(broken))
            while time.monotonic() < end:
                for fuzzer in fuzzers:
                    fuzzer.run(min(max(1.0, given.seconds / len(fuzzers) / 20), max(0.1, end - time.monotonic())))
                if given.json:
                    given.json.write_text(json.dumps([one.result() for one in fuzzers], indent=1))
    for fuzzer in fuzzers:
        print(json.dumps(fuzzer.result()))
        for number, (text, content) in enumerate(fuzzer.finds.values()):
            if given.finds:
                where = given.finds / re.sub(r"\W+", "_", fuzzer.reader.name)
                where.mkdir(parents=True, exist_ok=True)
                (where / f"{number}.bin").write_bytes(content)
                (where / f"{number}.txt").write_text(text, errors="replace")
    print(sum(fuzzer.counts.total() for fuzzer in fuzzers), "inputs")
    return int(any(fuzzer.finds for fuzzer in fuzzers))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
