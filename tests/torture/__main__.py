"""`python -m tests.torture`: random faults at random moments of small runs; then the same command must lead to the
same bits, or to one clear line.

`make torture` plays 200 rounds. `--record` writes docs/results/reliability.json and the table of docs/reliability.md.
A round is repeated by its seed: `python -m tests.torture --seeds 17`.
"""

import argparse
import collections
import contextlib
import datetime
import json
import os
import random
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.markdown import with_table
from tests.torture.families import FAMILIES
from tests.torture.rounds import FAILED, MISSED, REFUSED, SAME, WARNED, Round, make_references, timed
from tests.torture.starts import import_everything

PAGE, RESULTS = Path("docs/reliability.md"), Path("docs/results/reliability.json")
MARKERS = ("<!-- begin torture -->", "<!-- end torture -->")
OUTCOMES = (SAME, WARNED, REFUSED, FAILED)
MOUNTS = "JAXNLP_TORTURE_MOUNTS"
"""Set in a process that may mount folders without any other process seeing them."""


def drawn(seed: int, place: Path, shared: Path, families: Sequence[str] = FAMILIES) -> Round:
    """The round of a seed."""
    from tests.torture.faults import FAULTS

    draw = random.Random(f"round {seed}")
    fault = draw.choice([name for name, fault in FAULTS.items() if {*fault.families} & {*families}])
    family = draw.choice([name for name in FAULTS[fault].families if name in families])
    return Round(seed, fault, family, draw.choice(FAULTS[fault].moments), place, shared)


def main() -> int:
    arguments = parsed()
    if MOUNTS not in os.environ and os.geteuid() == 0 and shutil.which("unshare"):
        os.environ[MOUNTS] = "1"
        os.execvp("unshare", ["unshare", "--mount", sys.executable, "-m", "tests.torture", *sys.argv[1:]])
    folder = Path(arguments.folder or tempfile.mkdtemp(prefix="torture"))
    shared = folder / "shared"
    shared.mkdir(parents=True, exist_ok=True)
    os.environ |= {
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": "--xla_force_host_platform_device_count=1",
        "JAX_COMPILATION_CACHE_DIR": str(shared / "compiled"),
        "JAXNLP_CACHE": str(shared / "cache"),
    }
    import_everything()
    make_references(shared, arguments.families)
    begun, header = time.monotonic(), facts()
    rows = played(arguments.seeds or range(arguments.first, arguments.first + arguments.rounds), folder, arguments)
    header |= {"seconds": round(time.monotonic() - begun), "mounts": MOUNTS in os.environ}
    print(table([header, *rows]))
    if arguments.record:
        record([header, *rows])
    if not arguments.folder:
        shutil.rmtree(folder)
    return int(any(row["outcome"] == FAILED for row in rows))


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description=__doc__)
    parser.add_argument("--rounds", type=int, default=200, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the seed of the first round")
    parser.add_argument("--seeds", type=int, nargs="*", help="the seeds of some rounds")
    parser.add_argument("--jobs", type=int, default=2, help="rounds at the same time")
    parser.add_argument("--minutes", type=float, default=1e9, help="no round starts after them")
    parser.add_argument("--families", nargs="*", default=[*FAMILIES], help="only these")
    parser.add_argument("--folder", help="where the rounds are played, and what failed is kept")
    parser.add_argument("--record", action="store_true", help=f"write {RESULTS} and {PAGE}")
    return parser.parse_args()


def played(seeds: Sequence[int], folder: Path, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Plays rounds in several processes, and prints a line for each. Returns: their rows, by seed."""
    from tests.torture.faults import FAULTS

    results, end = folder / f"rounds-{os.getpid()}.jsonl", time.monotonic() + 60 * arguments.minutes
    results.touch()
    sys.stdout.flush()
    jobs = []
    for job in range(arguments.jobs):
        pid = os.fork()
        if pid:
            jobs.append(pid)
            continue
        with results.open("a", encoding="utf-8") as file:
            for seed in seeds[job :: arguments.jobs]:
                if time.monotonic() > end:
                    break
                round_ = drawn(seed, folder / f"round{seed}", folder / "shared", arguments.families)
                if FAULTS[round_.fault].mounts and MOUNTS not in os.environ:
                    continue
                row = timed(round_, FAULTS[round_.fault])
                print(" | ".join(str(value) for value in row.values()), flush=True)
                file.write(json.dumps(row) + "\n")
                file.flush()
                if row["outcome"] != FAILED:
                    with contextlib.suppress(OSError):
                        shutil.rmtree(round_.place)
        os._exit(0)
    for pid in jobs:
        os.waitpid(pid, 0)
    rows = [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()]
    return sorted(rows, key=lambda row: row["seed"])


def facts() -> dict[str, Any]:
    """Of the machine."""
    from train.run.machine import commit

    name = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.M)
    return {
        "device": f"{os.cpu_count()} cores of {name[1] if name else 'a processor'}",
        "date": datetime.date.today().isoformat(),
        "commit": commit(),
    }


def table(recorded: Sequence[dict[str, Any]]) -> str:
    """The rows of a recording as Markdown tables: outcomes by fault, and by moment."""
    from train.run.machine import short_commit

    header, rows = recorded[0], [row for row in recorded[1:] if row["outcome"] != MISSED]
    missed = len(recorded) - 1 - len(rows)
    lines = [
        f"{len(rows)} rounds in {header['seconds'] / 60:.0f} minutes on {header['device']}, {header['date']}, at "
        f"commit {short_commit(header['commit'])}, with seeds of {min((row['seed'] for row in rows), default=0)} to "
        f"{max((row['seed'] for row in rows), default=0)}. In {missed} further rounds the run ended before the moment."
    ]
    for name in ("fault", "moment", "family"):
        counts: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
        for row in rows:
            counts[row[name]][row["outcome"]] += 1
        lines += ["", f"| {name} | rounds | {' | '.join(OUTCOMES)} |", "| --- |" + " ---: |" * (1 + len(OUTCOMES))]
        for value, found in sorted(counts.items()):
            lines.append(f"| {value} | {found.total()} | {' | '.join(str(found[x]) for x in OUTCOMES)} |")
    return "\n".join(lines) + "\n"


def record(recorded: Sequence[dict[str, Any]]) -> None:
    """Writes the figures, and the page's table."""
    lines = (json.dumps(row) for row in recorded)
    RESULTS.write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8"), table(recorded), MARKERS), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
