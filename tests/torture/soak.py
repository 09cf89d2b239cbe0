"""`python -m tests.torture.soak`: long trainings of tiny models, then many calls of each; what they take must not grow.

Each model has a process of its own, which samples itself at equal distances: memory, open files, threads, compilations
and the size of the run's folder. `--record` writes docs/results/soak.json and the table of docs/reliability.md.
"""

import argparse
import contextlib
import json
import os
import random
import resource
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.markdown import with_table
from jaxnlp.saving.checkpoint_reading import checkpoint_steps
from tests.torture.families import OTHERS, TEXTS, WORDS, write_text

PAGE, RESULTS = Path("docs/reliability.md"), Path("docs/results/soak.json")
MARKERS = ("<!-- begin soak -->", "<!-- end soak -->")
SAMPLES = 20
VERBS = {"gpt": "perplexity", "lstm": "perplexity", "tagger": "tag"}
"""The families, and what a call of each computes."""
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


def trains(family: str, folder: Path, steps: int) -> dict[str, Any]:
    """Trains a tiny model for so many steps, with evaluations, checkpoints and logs."""
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
    recipe = f"{TEXTS[family]} --data.path {folder / 'text.txt'}" if family in TEXTS else OTHERS[family]
    words = f"{recipe} {EVERY} --total-steps {steps}".split()
    begun = time.monotonic()
    if start.main([*words, "--workdir", str(folder / "run")]):
        raise SystemExit("the run has not ended")
    return {
        "what": f"{steps:,} steps of {family}",
        "seconds": round(time.monotonic() - begun),
        "samples": watch.samples,
    }


def calls(family: str, folder: Path, count: int) -> dict[str, Any]:
    """Calls the trained model so many times, with texts of mixed numbers and lengths."""
    from jaxnlp.runs import load_run

    compute: Any = getattr(load_run(folder / "run"), VERBS[family])
    draw, watch, distance = random.Random(0), Watch(folder / "run"), max(count // SAMPLES, 1)
    begun = time.monotonic()
    for done in range(1, count + 1):
        compute([" ".join(draw.choices(WORDS, k=draw.randrange(1, 40))) for _ in range(draw.randrange(1, 9))])
        if done % distance == 0:
            watch.sample(done)
    return {
        "what": f"{count:,} calls of {family}",
        "seconds": round(time.monotonic() - begun),
        "samples": watch.samples,
    }


def soaked(family: str, steps: int, count: int) -> list[dict[str, Any]]:
    """Both parts of a family, in a process of its own."""
    with tempfile.TemporaryDirectory(prefix="soak") as name:
        out, pid = Path(name) / "parts.json", os.fork()
        if not pid:
            folder = Path(name)
            out.write_text(json.dumps([trains(family, folder, steps), calls(family, folder, count)]))
            sys.stdout.flush()
            os._exit(0)
        os.waitpid(pid, 0)
        parts: list[dict[str, Any]] = json.loads(out.read_text())
    return parts


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
    parser.add_argument("--calls", type=int, default=100_000, help="of all families together")
    parser.add_argument("--families", nargs="*", default=list(VERBS))
    parser.add_argument("--record", action="store_true", help=f"write {RESULTS} and {PAGE}")
    given = parser.parse_args()
    parts = [facts()]
    for family in given.families:
        parts += soaked(family, given.steps, -(-given.calls // len(given.families)))
    print(table(parts))
    if given.record:
        RESULTS.write_text("[\n" + ",\n".join(json.dumps(part) for part in parts) + "\n]\n", encoding="utf-8")
        PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8"), table(parts), MARKERS), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
