"""`python -m tests.torture.soak`: a long training of a tiny model, then many calls of it; what they take must not grow.

It writes docs/results/soak.json and the table of docs/reliability.md. Both are tried in this process: memory, open
files, threads, compilations and the size of the run's folder, at equal distances.
"""

import argparse
import contextlib
import json
import os
import random
import resource
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.markdown import with_table
from jaxnlp.saving.checkpoints import checkpoint_steps
from tests.torture.families import TEXTS, WORDS, write_text

PAGE, RESULTS = Path("docs/reliability.md"), Path("docs/results/soak.json")
MARKERS = ("<!-- begin soak -->", "<!-- end soak -->")
SAMPLES = 20
COMPILED = "/jax/core/compile/backend_compile_duration"
EVERY = "--evaluate-every-steps 500 --checkpoint-every-steps 250 --log-every-steps 10 --optimizer.schedule.warmup 4"


class Watch:
    """Samples what this process takes. Its first sample, after the warm-up, is what the others are compared with."""

    def __init__(self, folder: Path):
        self._folder = folder
        self._compilations = 0
        self.samples: list[dict[str, Any]] = []
        import jax

        jax.monitoring.register_event_duration_secs_listener(self._count)

    def _count(self, event: str, duration_secs: float, **_: Any) -> None:
        self._compilations += event == COMPILED

    def sample(self, done: int) -> None:
        """Takes a sample after so many steps or calls."""
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        sizes = []
        for folder, _, names in os.walk(self._folder):
            for name in names:
                with contextlib.suppress(OSError):  # checkpoints come and go
                    sizes.append(os.path.getsize(os.path.join(folder, name)))
        self.samples.append(
            {
                "done": done,
                "resident_mb": round(pages * resource.getpagesize() / 1e6, 1),
                "open_files": len(os.listdir("/proc/self/fd")),
                "threads": threading.active_count(),
                "compilations": self._compilations,
                "checkpoints": len(checkpoint_steps(self._folder)),
                "folder_mb": round(sum(sizes) / 1e6, 2),
            }
        )


def trains(folder: Path, steps: int) -> dict[str, Any]:
    """Trains a tiny GPT for so many steps, with evaluations, checkpoints and logs."""
    from train import loop, start
    from train.logs.log import RunLog

    write_text(folder / "text.txt")
    watch, distance = Watch(folder / "run"), max(steps // SAMPLES, 1)

    class Sampled(RunLog):
        def log_train(self, step: int, **more: Any) -> None:
            super().log_train(step, **more)
            if step % distance == 0:
                watch.sample(step)

    loop.RunLog = Sampled  # type: ignore[misc]
    words = f"{TEXTS['gpt']} --data.path {folder / 'text.txt'} {EVERY} --total-steps {steps}".split()
    begun = time.monotonic()
    if start.main([*words, "--workdir", str(folder / "run")]):
        raise SystemExit("the run has not ended")
    return {"what": f"{steps:,} steps of a GPT", "seconds": round(time.monotonic() - begun), "samples": watch.samples}


def calls(folder: Path, count: int, seconds: float) -> dict[str, Any]:
    """Calls the trained model so many times with texts of mixed numbers and lengths, or until the time is over."""
    from jaxnlp.runs import load_run

    run: Any = load_run(folder / "run")
    draw, watch, distance = random.Random(0), Watch(folder / "run"), max(count // SAMPLES, 1)
    begun, done = time.monotonic(), 0

    def once() -> None:
        texts = [" ".join(draw.choices(WORDS, k=draw.randrange(1, 40))) for _ in range(draw.randrange(1, 9))]
        run.perplexity(texts)

    while done < count and time.monotonic() - begun < seconds:
        once()
        done += 1
        if done % distance == 0:
            watch.sample(done)
    return {"what": f"{done:,} calls of it", "seconds": round(time.monotonic() - begun), "samples": watch.samples}


def table(parts: Sequence[dict[str, Any]]) -> str:
    """What each part took, first and last, as a Markdown table."""
    where = parts[0]
    lines = [
        f"Measured on {where['device']}, {where['date']}, at commit {where['commit'][:8]}. Each part has {SAMPLES} "
        "samples at equal distances; the first one is after a twentieth.",
        "",
        "| | seconds | resident memory, MB | open files | threads | compilations | checkpoints | folder, MB |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    show: Callable[[dict[str, Any], str], str] = lambda part, name: (  # noqa: E731
        f"{part['samples'][0][name]} to {part['samples'][-1][name]}"
    )
    names = ("resident_mb", "open_files", "threads", "compilations", "checkpoints", "folder_mb")
    for part in parts[1:]:
        lines.append(f"| {part['what']} | {part['seconds']:,} | {' | '.join(show(part, name) for name in names)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    from tests.torture.__main__ import facts

    parser = argparse.ArgumentParser(prog="python -m tests.torture.soak", description=__doc__)
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--calls", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=1e9, help="for the calls, at most")
    parser.add_argument("--record", action="store_true", help=f"write {RESULTS} and {PAGE}")
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="soak"))
    parts = [facts(), trains(folder, given.steps), calls(folder, given.calls, given.seconds)]
    print(table(parts))
    if given.record:
        RESULTS.write_text("[\n" + ",\n".join(json.dumps(part) for part in parts) + "\n]\n", encoding="utf-8")
        PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8"), table(parts), MARKERS), encoding="utf-8")
    shutil.rmtree(folder)


if __name__ == "__main__":
    sys.exit(main())
