"""The readers of `tests.faults.fuzz`, with inputs that are guided by coverage.

    python -m tests.faults.coverage --seconds 600 [--match csv] [--json FILE] [--finds FOLDER]

atheris, which is for Linux, sees which lines of jaxnlp, data and train an input runs, and keeps inputs that run new
lines. What counts as a find is decided by `Fuzzer`. Each reader has a process of its own, two of them at a time.
"""

import argparse
import json
import logging
import os
import random
import re
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import atheris

OURS = ["jaxnlp", "data", "train"]
with atheris.instrument_imports(include=OURS):
    from tests.faults.fuzz import MOST_BYTES, Fuzzer, Watch, limits
    from tests.faults.mutations import mutated
    from tests.faults.readers import Reader, readers_of

EVERY = 1_000
"""Inputs between two looks at the clock."""


def fuzz(reader: Reader, folder: Path, seconds: float, seed: int, out: Path) -> None:
    """Feeds a reader for some seconds, writes the counts, and ends this process."""
    logging.disable(logging.CRITICAL)
    corpus = folder / "corpus"
    corpus.mkdir(parents=True)
    for number, content in enumerate(reader.seeds):
        (corpus / str(number)).write_bytes(content)
    path = (reader.folder or folder) / reader.file
    with limits(), atheris.instrument_imports(include=OURS):  # the first input imports the rest
        path.write_bytes(reader.seeds[0])
        reader.read(path)
    with limits():
        fuzzer = Fuzzer(reader, folder, Watch(folder, Path(tempfile.gettempdir())), seed, "coverage")
        end = time.monotonic() + seconds

        def read(content: bytes) -> None:
            fuzzer.outcome(content)
            if fuzzer.counts.total() % EVERY == 0 and time.monotonic() > end:
                finds = [(text, content.hex()) for text, content in fuzzer.finds.values()]
                out.write_text(json.dumps({**fuzzer.result(), "texts": finds}))
                os._exit(0)

        def changed(content: bytes, most: int, number: int) -> bytes:
            generator = random.Random(number)
            if generator.random() < 0.5:
                return atheris.Mutate(content, most)
            return mutated(content, reader.seeds, generator)[:most]

        options = [f"-seed={seed + 1}", f"-max_len={MOST_BYTES}", "-len_control=20", "-rss_limit_mb=0", "-timeout=60"]
        atheris.Setup(["fuzz", *options, "-verbosity=0", str(corpus)], read, custom_mutator=changed)
        atheris.Fuzz()


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=60, help="for each reader")
    parser.add_argument("--match", default="", help="only readers whose name fits this pattern")
    parser.add_argument("--kinds", nargs="*", default=["plain", "folders"], help="plain, folders")
    parser.add_argument("--jobs", type=int, default=2, help="readers at the same time")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="write the counts here, after each reader")
    parser.add_argument("--finds", type=Path, help="write the inputs of finds here")
    given = parser.parse_args(arguments)
    os.environ["HF_HUB_OFFLINE"] = "1"
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as name:
        folder = Path(name)
        waiting = [reader for _, reader in readers_of(given.kinds, folder) if re.search(given.match, reader.name)]
        running: dict[int, tuple[Reader, Path]] = {}
        while waiting or running:
            while waiting and len(running) < given.jobs:
                reader = waiting.pop(0)
                own = folder / f"fuzz-{len(waiting)}"
                own.mkdir()
                sys.stdout.flush()
                pid = os.fork()
                if not pid:
                    fuzz(reader, own / "files", given.seconds, given.seed, own / "counts.json")
                running[pid] = (reader, own)
            pid, status = os.wait()
            reader, own = running.pop(pid)
            if status:
                print(f"FIND {reader.name}: the process ended with {os.waitstatus_to_exitcode(status)}")
                counts = dict.fromkeys(("inputs", "read", "refused", "messages", "cpu_seconds", "slowest_seconds"), 0)
                rows.append({"kind": "fuzz", "files": "coverage", "reader": reader.name, **counts, "finds": 1})
                continue
            row = json.loads((own / "counts.json").read_text())
            for number, (text, content) in enumerate(row.pop("texts")):
                if given.finds:
                    given.finds.mkdir(parents=True, exist_ok=True)
                    stem = f"{re.sub(r'[^a-z0-9]+', '_', reader.name)}-{number}"
                    (given.finds / f"{stem}.bin").write_bytes(bytes.fromhex(content))
                    (given.finds / f"{stem}.txt").write_text(text, errors="replace")
            rows.append(row)
            print(json.dumps(row), flush=True)
            if given.json:
                given.json.write_text(json.dumps(rows, indent=1))
    print(sum(row.get("inputs", 0) for row in rows), "inputs")
    return int(any(row["finds"] for row in rows))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
