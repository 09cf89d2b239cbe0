"""What a person sees of a run: progress on the terminal, metrics.jsonl, TensorBoard events, samples."""

import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import jax
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from jaxnlp.metrics import means, total
from jaxnlp.typing import Metrics
from train.folder import METRICS_FILE, SAMPLES_FILE, keep_lines_until

SECONDS_BETWEEN_LINES = 5.0
"""How often a plain line of progress is printed where there is no terminal to draw a bar on."""


class RunLog:
    """Writes a run's metrics wherever they are read; a context manager.

    Between two calls of `log_train` the metrics stay on the device: only logging copies them.

    Args:
      workdir: the run's folder.
      console: where progress goes: a bar on a terminal, plain lines elsewhere.
      total_steps: the length of the run.
      first_step: steps done before this start; lines that an earlier start wrote after it are dropped.
      train_seconds: spent on training before this start.
      unit: what the count of the loss is a number of.
    """

    def __init__(
        self,
        workdir: Path,
        console: Console,
        *,
        total_steps: int,
        first_step: int = 0,
        train_seconds: float = 0.0,
        unit: str = "tokens",
    ):
        self._workdir = workdir
        self._console = console
        self._total_steps = total_steps
        self._first_step = first_step
        self._train_seconds = train_seconds
        self._unit = unit
        self._seconds_at_line = train_seconds
        self._step_at_line = first_step
        self._pending: list[Metrics] = []
        self._clock = time.perf_counter()
        self._last_print = float("-inf")
        self._bar: Progress | None = None
        self._files: dict[str, IO[str]] = {}
        self._board: Any = None

    def __enter__(self) -> "RunLog":
        for name in (METRICS_FILE, SAMPLES_FILE):
            keep_lines_until(self._workdir / name, self._first_step)
            self._files[name] = (self._workdir / name).open("a", encoding="utf-8")
        if self._console.is_terminal:
            columns = (TextColumn("step"), MofNCompleteColumn(), BarColumn(), TextColumn("{task.fields[status]}"))
            self._bar = Progress(*columns, console=self._console)
            self._bar.add_task("", total=self._total_steps, completed=self._first_step, status="compiling")
            self._bar.start()
        self._clock = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()
        for file in self._files.values():
            file.close()
        if self._board is not None:
            self._board.close()

    @property
    def train_seconds(self) -> float:
        """Time spent on training so far, over all starts of the run; evaluation and saving are left out."""
        return self._train_seconds

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """What happens inside is not training time."""
        self._tick()
        try:
            yield
        finally:
            self._clock = time.perf_counter()

    def _tick(self) -> None:
        now = time.perf_counter()
        self._train_seconds += now - self._clock
        self._clock = now

    def collect(self, metrics: Metrics) -> None:
        """Keeps a step's metrics, on the device."""
        self._pending.append(metrics)

    def log_train(self, step: int, *, learning_rate: jax.Array, skipped_updates: jax.Array) -> None:
        """Writes the mean of the metrics since the last such line, and the speed."""
        summed = total(jax.device_get(self._pending))
        self._pending = []
        self._tick()
        seconds = self._train_seconds - self._seconds_at_line
        seconds_per_step = seconds / (step - self._step_at_line)
        self._seconds_at_line, self._step_at_line = self._train_seconds, step
        row = means(summed) | {
            "learning_rate": float(learning_rate),
            f"{self._unit}_per_second": float(summed["loss"][1]) / seconds,
            "train_seconds": self._train_seconds,
            "skipped_updates": int(skipped_updates),
        }
        self._write(step, "train", row)
        left = _duration((self._total_steps - step) * seconds_per_step)
        speed = row[f"{self._unit}_per_second"]
        status = f"loss {row['loss']:.4f}  {speed:,.0f} {self._unit}/s  {left} left"
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=step, status=status)
        elif time.monotonic() - self._last_print >= SECONDS_BETWEEN_LINES or step == self._total_steps:
            self._last_print = time.monotonic()
            self._print(f"step {step}/{self._total_steps}  {status}")

    def log_evaluation(self, step: int, split: str, metrics: dict[str, float]) -> None:
        """Writes an evaluation's metrics."""
        self._write(step, split, metrics | {"train_seconds": self._train_seconds})
        values = "  ".join(f"{name} {value:.4f}" for name, value in metrics.items())
        self._print(f"step {step}/{self._total_steps}  {split} {values}")

    def log_sample(self, step: int, prompt: str, text: str) -> None:
        """Keeps a sample for the report."""
        self._append(SAMPLES_FILE, {"step": step, "prompt": prompt, "text": text})
        self._tensorboard().add_text("sample", text, step)

    def _write(self, step: int, split: str, values: dict[str, Any]) -> None:
        self._append(METRICS_FILE, {"step": step, "split": split, **values})
        for name, value in values.items():
            self._tensorboard().add_scalar(f"{split}/{name}", value, step)

    def _append(self, name: str, row: dict[str, Any]) -> None:
        self._files[name].write(json.dumps(row, ensure_ascii=False) + "\n")
        self._files[name].flush()

    def _tensorboard(self) -> Any:
        if self._board is None:
            # Imported here: it takes seconds, and the first step should not wait for it.
            from tensorboardX import SummaryWriter

            self._board = SummaryWriter(str(self._workdir / "tensorboard"), purge_step=self._first_step + 1)
        return self._board

    def _print(self, line: str) -> None:
        self._console.print(line, highlight=False, markup=False)


def _duration(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
