import contextlib
import io
import json

import jax.numpy as jnp
import pytest
from rich.console import Console
from tensorboardX.proto.event_pb2 import Event

from train.log import SECONDS_BETWEEN_LINES, RunLog


class Clock:
    """Stands where `train.log` reads the time."""

    def __init__(self):
        self.now = 100.0

    def perf_counter(self):
        return self.now

    monotonic = perf_counter


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr("train.log.time", clock)
    return clock


def console(**options):
    return Console(file=io.StringIO(), width=200, **options)


def step_metrics(loss, count):
    return {"loss": (jnp.float32(loss * count), jnp.float32(count)), "grad_norm": (jnp.float32(2.0), jnp.float32(1))}


def log_train(log, step, learning_rate=0.5, skipped=0):
    log.log_train(step, learning_rate=jnp.float32(learning_rate), skipped_updates=jnp.int32(skipped))


def rows(folder, name="metrics.jsonl"):
    return [json.loads(line) for line in (folder / name).read_text(encoding="utf-8").splitlines()]


def events(folder):
    """Scalars of all TensorBoard files, as (tag, step, value), parsed by the record format's own definition."""
    found = []
    for path in sorted((folder / "tensorboard").iterdir()):
        content = path.read_bytes()
        while content:
            length = int.from_bytes(content[:8], "little")
            event = Event.FromString(content[12 : 12 + length])
            found += [(value.tag, event.step, value.simple_value) for value in event.summary.value]
            content = content[16 + length :]
    return found


def test_train_row_is_the_mean_over_tokens_since_the_last_row(tmp_path, clock):
    with RunLog(tmp_path, console(), total_steps=10) as log:
        log.collect(step_metrics(4.0, 10))
        log.collect(step_metrics(1.0, 30))
        clock.now += 5.0
        log_train(log, 2, skipped=1)
        log.collect(step_metrics(8.0, 10))
        clock.now += 2.0
        log_train(log, 3)
    assert rows(tmp_path) == [
        {
            "step": 2,
            "split": "train",
            "loss": 1.75,
            "grad_norm": 2.0,
            "learning_rate": 0.5,
            "tokens_per_second": 8.0,
            "train_seconds": 5.0,
            "skipped_updates": 1,
        },
        {
            "step": 3,
            "split": "train",
            "loss": 8.0,
            "grad_norm": 2.0,
            "learning_rate": 0.5,
            "tokens_per_second": 5.0,
            "train_seconds": 7.0,
            "skipped_updates": 0,
        },
    ]


def test_paused_time_is_no_training_time(tmp_path, clock):
    with RunLog(tmp_path, console(), total_steps=10) as log:
        clock.now += 3.0
        with log.paused():
            clock.now += 1000.0
            assert log.train_seconds == 3.0
        clock.now += 2.0
        log.collect(step_metrics(1.0, 50))
        log_train(log, 1)
    assert [(row["train_seconds"], row["tokens_per_second"]) for row in rows(tmp_path)] == [(5.0, 10.0)]


def test_pause_left_by_an_error_is_no_training_time(tmp_path, clock):
    with RunLog(tmp_path, console(), total_steps=10) as log:
        with contextlib.suppress(ArithmeticError), log.paused():
            clock.now += 1000.0
            raise ArithmeticError
        clock.now += 1.0
        log.collect(step_metrics(1.0, 1))
        log_train(log, 1)
        assert log.train_seconds == 1.0


def test_time_between_making_and_entering_the_log_is_no_training_time(tmp_path, clock):
    log = RunLog(tmp_path, console(), total_steps=10)
    clock.now += 1000.0
    with log:
        clock.now += 1.0
        log.collect(step_metrics(1.0, 1))
        log_train(log, 1)
    assert log.train_seconds == 1.0


def test_continued_run_adds_to_the_training_time_and_speeds_of_its_own_steps(tmp_path, clock):
    with RunLog(tmp_path, console(), total_steps=10, first_step=4, train_seconds=40.0) as log:
        log.collect(step_metrics(1.0, 60))
        clock.now += 2.0
        log_train(log, 5)
    assert [(row["train_seconds"], row["tokens_per_second"]) for row in rows(tmp_path)] == [(42.0, 30.0)]


def test_metrics_wait_on_the_device_until_they_are_logged(tmp_path):
    class Untouchable:
        def __getattr__(self, name):
            raise AssertionError(f"{name} was asked of a metric before it was logged")

    with RunLog(tmp_path, console(), total_steps=10) as log:
        log.collect({"loss": (Untouchable(), Untouchable())})
    assert rows(tmp_path) == []


def test_evaluation_row_names_its_split(tmp_path, clock):
    with RunLog(tmp_path, console(), total_steps=10, train_seconds=3.0) as log:
        log.log_evaluation(4, "validation", {"loss": 1.5, "accuracy": 0.25})
    assert rows(tmp_path) == [
        {"step": 4, "split": "validation", "loss": 1.5, "accuracy": 0.25, "train_seconds": 3.0},
    ]


def test_rows_are_on_disk_as_soon_as_they_are_logged(tmp_path):
    with RunLog(tmp_path, console(), total_steps=10) as log:
        log.log_evaluation(1, "validation", {"loss": 1.5})
        log.log_sample(1, "a", "ab")
        assert [row["step"] for row in rows(tmp_path)] == [1]
        assert rows(tmp_path, "samples.jsonl") == [{"step": 1, "prompt": "a", "text": "ab"}]


def write_steps(folder, steps, text="ab"):
    with RunLog(folder, console(), total_steps=100, first_step=steps[0] - 1) as log:
        for step in steps:
            log.log_evaluation(step, "validation", {"loss": float(step)})
            log.log_sample(step, "a", f"{text}{step}")


@pytest.mark.parametrize("last", [0, 3, 9])
def test_continued_run_drops_what_was_written_after_its_checkpoint(tmp_path, last):
    write_steps(tmp_path, [1, 2, 3, 4, 5])
    write_steps(tmp_path, [last + 1])
    expected = [*(step for step in range(1, 6) if step <= last), last + 1]
    for name in ("metrics.jsonl", "samples.jsonl"):
        assert [row["step"] for row in rows(tmp_path, name)] == expected


@pytest.mark.parametrize("kept_characters", [1, 10, -2])
def test_half_written_last_line_is_dropped(tmp_path, kept_characters):
    write_steps(tmp_path, [1, 2, 3])
    for name in ("metrics.jsonl", "samples.jsonl"):
        path = tmp_path / name
        lines = path.read_text().splitlines(keepends=True)
        path.write_text("".join(lines[:2]) + lines[2][:kept_characters])
    write_steps(tmp_path, [4])
    for name in ("metrics.jsonl", "samples.jsonl"):
        assert [row["step"] for row in rows(tmp_path, name)] == [1, 2, 4]


def test_last_line_without_its_line_end_stays_a_line(tmp_path):
    write_steps(tmp_path, [1, 2])
    path = tmp_path / "metrics.jsonl"
    path.write_text(path.read_text().rstrip("\n"))
    write_steps(tmp_path, [3])
    assert [row["step"] for row in rows(tmp_path)] == [1, 2, 3]


def test_last_line_cut_inside_a_character_is_dropped(tmp_path):
    write_steps(tmp_path, [1, 2], text="汉字")
    path = tmp_path / "samples.jsonl"
    content = path.read_bytes()
    path.write_bytes(content[: content.rindex("字".encode()) + 1])
    write_steps(tmp_path, [3])
    assert [row["step"] for row in rows(tmp_path, "samples.jsonl")] == [1, 3]


@pytest.mark.parametrize("separator", ["\u2028", "\x85", "\x0c", "\n"])
def test_samples_keep_characters_that_some_count_as_line_ends(tmp_path, separator):
    write_steps(tmp_path, [1, 2, 3], text=f"one{separator}two")
    write_steps(tmp_path, [4])
    kept = [json.loads(line) for line in (tmp_path / "samples.jsonl").read_bytes().split(b"\n") if line]
    assert [(row["step"], row["text"]) for row in kept[:3]] == [(n, f"one{separator}two{n}") for n in (1, 2, 3)]


def test_plain_lines_when_there_is_no_terminal(tmp_path, clock):
    screen = console(force_terminal=False)
    with RunLog(tmp_path, screen, total_steps=4) as log:
        for step in range(1, 5):
            log.collect(step_metrics(2.5, 10))
            clock.now += 1.0
            log_train(log, step)
        log.log_evaluation(4, "validation", {"loss": 1.25})
    assert screen.file.getvalue().splitlines() == [
        "step 1/4  loss 2.5000  10 tokens/s  0:03 left",
        "step 4/4  loss 2.5000  10 tokens/s  0:00 left",
        "step 4/4  validation loss 1.2500",
    ]


def test_plain_lines_come_every_few_seconds(tmp_path, clock):
    screen = console(force_terminal=False)
    with RunLog(tmp_path, screen, total_steps=1000) as log:
        for step in range(1, 22):
            log.collect(step_metrics(2.5, 10))
            clock.now += SECONDS_BETWEEN_LINES / 10
            log_train(log, step)
    assert [line.split("/")[0] for line in screen.file.getvalue().splitlines()] == ["step 1", "step 11", "step 21"]


def test_time_left_extrapolates_the_newest_speed(tmp_path, clock):
    screen = console(force_terminal=False)
    with RunLog(tmp_path, screen, total_steps=10_000) as log:
        log.collect(step_metrics(1.0, 1))
        clock.now += 2.0
        log_train(log, 4)
    assert "1:23:18 left" in screen.file.getvalue()


def test_terminal_shows_a_bar_with_the_newest_loss(tmp_path):
    screen = console(force_terminal=True)
    with RunLog(tmp_path, screen, total_steps=4) as log:
        log.collect(step_metrics(2.5, 10))
        log_train(log, 3)
    drawn = screen.file.getvalue()
    assert "3/4" in drawn
    assert "loss 2.5000" in drawn


def test_markup_in_metrics_and_samples_is_text(tmp_path):
    screen = console(force_terminal=False)
    with RunLog(tmp_path, screen, total_steps=4) as log:
        log.log_evaluation(1, "[red]dev[/red]", {"loss": 1.0})
        log.log_sample(1, "[b]", "[b][/i]")
    assert "[red]dev[/red] loss 1.0000" in screen.file.getvalue()


def test_tensorboard_file_holds_every_metric_by_split(tmp_path, clock):
    with RunLog(tmp_path, console(), total_steps=10) as log:
        log.collect(step_metrics(2.5, 10))
        clock.now += 1.0
        log_train(log, 1)
        log.log_evaluation(1, "validation", {"loss": 1.5})
        log.log_sample(1, "a", "ab")
    found = {(tag, step): value for tag, step, value in events(tmp_path)}
    assert found["train/loss", 1] == 2.5
    assert found["train/tokens_per_second", 1] == 10.0
    assert found["train/learning_rate", 1] == 0.5
    assert found["validation/loss", 1] == 1.5
    assert any(tag.startswith("sample") for tag, _ in found)


def test_finished_run_that_is_entered_again_writes_nothing(tmp_path):
    write_steps(tmp_path, [1, 2])
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with RunLog(tmp_path, console(), total_steps=2, first_step=2):
        pass
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
