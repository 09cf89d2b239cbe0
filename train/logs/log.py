"""The output of a run: progress on the terminal, metrics.jsonl, sections.jsonl, TensorBoard events."""

import contextlib
import dataclasses
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from jaxnlp.metrics import means, total
from jaxnlp.pages.content import MarkedText
from jaxnlp.saving.atomic_files import AppendedFile
from jaxnlp.tasks import Section
from jaxnlp.typing import Metrics
from train.logs.compile_time import compile_seconds
from train.logs.event_file import EventFile
from train.report.sections import LoggedSection, section_to_json
from train.run.folder import METRICS_FILE, SECTIONS_FILE, keep_lines_until, logged_steps, writes_folder

SECONDS_BETWEEN_LINES = 5.0
"""Seconds between two lines of progress without a terminal."""

SECONDS_BETWEEN_BARS = 1.0
"""Seconds between two updates of the bar."""

LONG_SECONDS = 1.0
"""An evaluation's compilation is announced if it takes this long."""

STEPS_BEFORE_ESTIMATE = 10
"""Steps of this start before the remaining time is estimated, from the steps after the first."""


@dataclasses.dataclass
class Pace:
    """Inputs to the ETA, without compilation.

    Attributes:
      first: train_seconds at the end of this start's first step; None = before it.
      evaluation: seconds of the newest evaluation and of saving after it; the first ones also import and compile.
    """

    first: float | None = None
    evaluation: float = 0.0


class RunLog:
    """Writes a run's metrics to files and to the console; a context manager.

    Between two calls of `log_train` the metrics stay on the device. It waits only for the first step of a start, which
    compiles, and for the tenth, after which the ETA is known.

    Args:
      workdir: the run's folder.
      console: prints progress: a bar on a terminal, otherwise plain lines.
      total_steps: the length of the run.
      first_step: steps done before this start; later lines of an earlier start are dropped.
      evaluations: evaluations done before this start; None = unknown.
      evaluate_every_steps: evaluation interval, for the ETA; None = no evaluations.
      train_seconds: spent on training before this start.
      progress: the metric whose count is the throughput.
      unit: the noun for the count: tokens, examples.
      writes: whether this process writes and prints; None = only process 0.
    """

    def __init__(
        self,
        workdir: Path,
        console: Console,
        *,
        total_steps: int,
        first_step: int = 0,
        evaluations: int | None = None,
        evaluate_every_steps: int | None = None,
        train_seconds: float = 0.0,
        progress: str = "loss",
        unit: str = "tokens",
        writes: bool | None = None,
    ):
        self._workdir = workdir
        self._console = console
        self._total_steps = total_steps
        self._first_step = first_step
        self._evaluations = evaluations
        self._evaluate_every = evaluate_every_steps
        self._train_seconds = train_seconds
        self._progress = progress
        self._unit = unit
        self._writes = writes_folder() if writes is None else writes
        self._seconds_at_row = train_seconds
        self._pending: list[Metrics] = []
        self._step = first_step
        self._clock = time.perf_counter()
        self._pace = Pace()
        self._compiled_before = 0.0
        self._evaluated = False
        self._last_shown = float("-inf")
        self._status = "compiling"
        self._bar: Progress | None = None
        self._files: dict[str, AppendedFile] = {}
        self._board: EventFile | None = None

    def __enter__(self) -> "RunLog":
        if self._writes:
            self._open()
        self._clock = time.perf_counter()
        return self

    def _open(self) -> None:
        self._warn_of_missing_history()
        for name in (METRICS_FILE, SECTIONS_FILE):
            keep_lines_until(self._workdir / name, self._first_step)
        self._files = {name: AppendedFile(self._workdir / name) for name in (METRICS_FILE, SECTIONS_FILE)}
        if self._console.is_terminal:
            columns = (TextColumn("step"), MofNCompleteColumn(), BarColumn(), TextColumn("{task.fields[status]}"))
            self._bar = Progress(*columns, console=self._console)
            self._bar.add_task("", total=self._total_steps, completed=self._first_step, status=self._status)
            self._bar.start()

    def _warn_of_missing_history(self) -> None:
        """Warns of gaps in the report: each checkpoint and each evaluation should have a row."""
        path = self._workdir / METRICS_FILE
        steps, first = logged_steps(path), self._first_step
        if first == 0 and steps:
            self._print(
                f"warning: {self._workdir} has metrics up to step {max(steps)} but no checkpoint: the training starts "
                "again from step 1, and these metrics are dropped"
            )
        kept = [step for step in steps if step <= first]
        last = max(kept, default=0)
        if last < first:
            self._warn_of_gap(f"{path} has no rows of steps {last + 1} to {first}")
            return
        evaluations = sum(step <= first for step in logged_steps(path, "validation"))
        if self._evaluations is not None and evaluations < self._evaluations:
            self._warn_of_gap(f"{path} has {evaluations} of {self._evaluations} evaluations up to step {first}")
        if first and not (self._workdir / SECTIONS_FILE).exists():
            self._warn_of_gap(f"{self._workdir / SECTIONS_FILE} was deleted")

    def _warn_of_gap(self, missing: str) -> None:
        self._print(f"warning: {missing}: the report will have a gap; the training continues unchanged")

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()
        for file in (*self._files.values(), self._board):
            if file is not None:
                file.close()

    @property
    def train_seconds(self) -> float:
        """Time spent on training so far, over all starts of the run, without evaluation and saving."""
        return self._train_seconds

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """A context whose time is not training time."""
        self._tick()
        compiled, self._evaluated = compile_seconds(), False
        try:
            yield
        finally:
            now, inside = time.perf_counter(), compile_seconds() - compiled
            if self._evaluated:
                self._pace.evaluation = max(now - self._clock - inside, 0.0)
            self._compiled_before += inside
            self._clock = now

    def _tick(self) -> None:
        now = time.perf_counter()
        self._train_seconds += now - self._clock
        self._clock = now

    def collect(self, metrics: Metrics) -> None:
        """Keeps a step's metrics on the device, and shows the progress at intervals."""
        self._pending.append(metrics)
        self._step += 1
        here = self._step - self._first_step
        if here == 1:
            jax.block_until_ready(metrics)
            self._tick()
            self._pace.first = self._train_seconds
            self._compiled_before = compile_seconds()
            self._status = "compiled"
        elif here == STEPS_BEFORE_ESTIMATE and self._step < self._total_steps:
            jax.block_until_ready(metrics)
            self._status = _losses(means(total(jax.device_get(self._pending))))
            self._show(self._step, self._status, now=True)
        elif here > STEPS_BEFORE_ESTIMATE and self._is_due():
            # Steps are only queued here. Progress is the last step that the device has finished.
            done = self._step - _unfinished(self._pending)
            self._show(done, self._status if self._bar is not None else "")

    def log_train(self, step: int, *, learning_rate: jax.Array, skipped_updates: jax.Array) -> None:
        """Writes the mean of the metrics since the last such row, and the throughput."""
        summed = total(jax.device_get(self._pending))
        self._pending = []
        self._tick()
        seconds = self._train_seconds - self._seconds_at_row
        self._seconds_at_row = self._train_seconds
        speed = float(summed[self._progress][1]) / seconds
        row = means(summed) | {
            "learning_rate": float(learning_rate),
            f"{self._unit}_per_second": speed,
            "train_seconds": self._train_seconds,
            "skipped_updates": int(skipped_updates),
        }
        self._write(step, "train", row)
        self._status = "  ".join(part for part in (_losses(row), f"{speed:,.0f} {self._unit}/s") if part)
        self._show(step, self._status, now=step == self._total_steps)

    def announce_evaluation(self) -> None:
        """Shows the start of an evaluation in the progress bar."""
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], status="evaluating")

    def announce_compilation(self, seconds: float) -> None:
        """Announces that an evaluation waited long for programs that its evaluator had not named."""
        if seconds >= LONG_SECONDS:
            self._print(f"the evaluation compiled programs of its own for {seconds:.0f} s")

    def log_evaluation(self, step: int, split: str, metrics: Mapping[str, float]) -> None:
        """Writes an evaluation's metrics."""
        self._evaluated = True
        self._write(step, split, {**metrics, "train_seconds": self._train_seconds})
        values = "  ".join(f"{name} {value:z.4f}" for name, value in metrics.items())
        self._print(f"step {step}/{self._total_steps}  {split} {values}")

    def log_sections(self, step: int, sections: Sequence[Section]) -> None:
        """Writes sections for the report; marked texts also go to TensorBoard.

        Raises: ValueError when the report cannot draw a section; nothing is written then.
        """
        rows = [section_to_json(LoggedSection(step, each.name, each.keep, each.content)) for each in sections]
        for section, row in zip(sections, rows, strict=True):
            self._append(SECTIONS_FILE, row)
            if isinstance(section.content, MarkedText) and self._writes:
                paragraphs = ("".join(text for text, _ in paragraph) for paragraph in section.content.paragraphs)
                self._tensorboard().add_text(section.name, "\n\n".join(paragraphs), step)

    def _write(self, step: int, split: str, values: Mapping[str, Any]) -> None:
        self._append(METRICS_FILE, {"step": step, "split": split, **values})
        if self._writes:
            for name, value in values.items():
                self._tensorboard().add_scalar(f"{split}/{name}", value, step)

    def _append(self, name: str, row: Mapping[str, Any]) -> None:
        if self._writes:
            line = json.dumps(row, ensure_ascii=False) + "\n"
            # JSON reads the escape \udc80 back as the lone surrogate that UTF-8 cannot encode.
            self._files[name].append(line.encode("utf-8", "backslashreplace"))

    def _tensorboard(self) -> EventFile:
        if self._board is None:  # no file without events
            self._board = EventFile(self._workdir / "tensorboard", first_step=self._first_step + 1)
        return self._board

    def _is_due(self) -> bool:
        between = SECONDS_BETWEEN_LINES if self._bar is None else SECONDS_BETWEEN_BARS
        return time.monotonic() - self._last_shown >= between

    def _show(self, done: int, status: str, *, now: bool = False) -> None:
        """Updates the bar, or prints a line if one is due."""
        status = "  ".join(part for part in (status, self._time_left(done)) if part)
        if self._bar is not None:
            self._last_shown = time.monotonic()
            self._bar.update(self._bar.task_ids[0], completed=done, status=status)
        elif now or self._is_due():
            self._last_shown = time.monotonic()
            self._print(f"step {done}/{self._total_steps}  {status}")

    def _time_left(self, done: int) -> str:
        """The remaining time, from the mean time of steps after the first and the newest evaluation; "" before ten
        steps."""
        here = done - self._first_step
        if self._pace.first is None or (done < self._total_steps and here < STEPS_BEFORE_ESTIMATE):
            return ""
        self._tick()
        trained = self._train_seconds - self._pace.first - (compile_seconds() - self._compiled_before)
        seconds = (self._total_steps - done) * max(trained, 0.0) / max(here - 1, 1)
        return f"{_duration(seconds + self._evaluations_left(done) * self._pace.evaluation)} left"

    def _evaluations_left(self, done: int) -> int:
        """Number of evaluations after these steps; the last step is always evaluated."""
        every = self._evaluate_every
        return 0 if every is None else -(-self._total_steps // every) - done // every

    def _print(self, line: str) -> None:
        if self._writes:
            self._console.print(line, highlight=False, markup=False, emoji=False)


def _losses(values: Mapping[str, float]) -> str:
    """The loss, and the objective if it differs."""
    return "  ".join(f"{name} {values[name]:z.4f}" for name in ("loss", "objective") if name in values)


def _unfinished(pending: Sequence[Metrics]) -> int:
    """Number of steps that the device has not finished yet."""
    for count, metrics in enumerate(reversed(pending)):
        leaves = (leaf for leaf in jax.tree.leaves(metrics) if isinstance(leaf, jax.Array))
        if all(leaf.is_ready() for leaf in leaves):  # type: ignore[attr-defined]
            return count
    return len(pending)


def _duration(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
