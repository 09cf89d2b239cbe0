import jax.numpy as jnp

from tests.train.log_helpers import console, log_train, sample, step_metrics, write_steps
from train.logs.log import SECONDS_BETWEEN_LINES, RunLog, _unfinished


def test_loss_and_objective_are_both_shown_where_both_are_measured(tmp_path, clock):
    screen = console(force_terminal=False)
    with RunLog(tmp_path, screen, total_steps=2) as log:
        for step, found in ((1, step_metrics(2.0, 4)), (2, {"objective": (jnp.float32(12.0), jnp.float32(4))})):
            log.collect(step_metrics(2.0, 4) | found)
            clock.now += 5.0
            log_train(log, step)
    first, second = screen.file.getvalue().splitlines()
    assert first.startswith("step 1/2  loss 2.0000  1 tokens/s")
    assert second.startswith("step 2/2  loss 2.0000  objective 3.0000  1 tokens/s")


def test_plain_lines_when_there_is_no_terminal(tmp_path, clock):
    screen = console(force_terminal=False)
    with RunLog(tmp_path, screen, total_steps=4) as log:
        for step in range(1, 5):
            log.collect(step_metrics(2.5, 10))
            clock.now += 1.0
            log_train(log, step)
        log.log_evaluation(4, "validation", {"loss": 1.25})
    assert screen.file.getvalue().splitlines() == [
        "step 1/4  loss 2.5000  10 tokens/s",
        "step 4/4  loss 2.5000  10 tokens/s  0:00 left",
        "step 4/4  validation loss 1.2500",
    ]


def lines_of(folder, clock, steps, seconds_of, *, total=1000, first=0, log_every=None, evaluations=()):
    """What is printed where each step takes `seconds_of(step)` of the clock."""
    folder.mkdir(exist_ok=True)
    screen = console(force_terminal=False)
    every = next(iter(evaluations), None)
    with RunLog(folder, screen, total_steps=total, first_step=first, evaluate_every_steps=every) as log:
        for step in range(first + 1, first + steps + 1):
            clock.now += seconds_of(step)
            log.collect(step_metrics(2.5, 10))
            if log_every and step % log_every == 0:
                log_train(log, step)
                with log.paused():
                    if step in evaluations:
                        clock.now += evaluations[step]
                        log.log_evaluation(step, "validation", {"loss": 1.0})
    return screen.file.getvalue().splitlines()


def test_plain_lines_come_every_few_seconds_with_and_without_metrics(tmp_path, clock):
    lines = lines_of(tmp_path / "with", clock, 41, lambda _: SECONDS_BETWEEN_LINES / 10, log_every=1)
    assert [line.split("/")[0] for line in lines] == [f"step {n}" for n in (1, 10, 20, 30, 40)]
    lines = lines_of(tmp_path / "without", clock, 41, lambda _: SECONDS_BETWEEN_LINES / 10)
    assert [line.split("/")[0] for line in lines] == [f"step {n}" for n in (10, 20, 30, 40)]


def test_after_ten_steps_the_time_left_is_shown_before_any_metrics_are_logged(tmp_path, clock):
    lines = lines_of(tmp_path, clock, 20, lambda step: 300.0 if step == 1 else 2.0)
    # 990 steps of 2 seconds: the first step, which compiled, is not counted.
    assert lines[0] == "step 10/1000  loss 2.5000  33:00 left"
    assert lines[-1] == "step 19/1000  32:42 left"
    assert not lines_of(tmp_path, clock, 9, lambda _: 2.0)


def test_time_left_of_a_continued_run_is_that_of_its_own_steps(tmp_path, clock):
    write_steps(tmp_path, [500])
    lines = lines_of(tmp_path, clock, 10, lambda step: 300.0 if step == 501 else 2.0, first=500)
    assert lines == ["step 510/1000  loss 2.5000  16:20 left"]


def test_time_left_includes_the_evaluations_to_come(tmp_path, clock):
    evaluations = {10: 20.0, 20: 10.0, 30: 10.0}
    lines = lines_of(tmp_path, clock, 31, lambda _: 1.0, total=61, log_every=10, evaluations=evaluations)
    # 30 steps of a second, and evaluations of ten seconds after steps 40, 50, 60 and 61: the newest one counts.
    assert lines[-1] == "step 31/61  1:10 left"


def test_time_left_has_no_compilation_of_later_steps_and_of_evaluations(tmp_path, clock, monkeypatch):
    monkeypatch.setattr("train.logs.log.compile_seconds", lambda: clock.compiled)
    clock.compiled = 0.0

    def seconds_of(step):
        clock.compiled += 40.0 if step == 5 else 0.0
        return 41.0 if step == 5 else 1.0

    lines = lines_of(tmp_path, clock, 10, seconds_of, total=30)
    assert lines == ["step 10/30  loss 2.5000  0:20 left"]


def test_steps_that_the_device_has_not_finished_are_not_counted(tmp_path, clock, monkeypatch):
    monkeypatch.setattr("train.logs.log._unfinished", lambda pending: 5)
    lines = lines_of(tmp_path, clock, 16, lambda _: 1.0)
    assert [line.split("/")[0] for line in lines] == ["step 10", "step 10"]


def test_only_finished_steps_count_as_done(monkeypatch):
    class Value:
        def __init__(self, ready):
            self.is_ready = lambda: ready

    monkeypatch.setattr("train.logs.log.jax.Array", Value)
    done, running = {"loss": (Value(True), Value(True))}, {"loss": (Value(True), Value(False))}
    assert _unfinished([]) == 0
    assert _unfinished([done, done]) == 0
    assert _unfinished([done, running, running]) == 2
    assert _unfinished([running]) == 1


def test_bar_moves_and_shows_the_time_left_before_any_metrics_are_logged(tmp_path, clock):
    screen = console(force_terminal=True)
    with RunLog(tmp_path, screen, total_steps=100) as log:
        for step in range(1, 13):
            clock.now += 300.0 if step == 1 else 2.0
            log.collect(step_metrics(2.5, 10))
    drawn = screen.file.getvalue()
    assert "12/100" in drawn
    assert "loss 2.5000  2:56 left" in drawn


def test_terminal_shows_a_bar_with_the_newest_loss(tmp_path):
    screen = console(force_terminal=True)
    with RunLog(tmp_path, screen, total_steps=4) as log:
        log.collect(step_metrics(2.5, 10))
        log_train(log, 3)
    drawn = screen.file.getvalue()
    assert "3/4" in drawn
    assert "loss 2.5000" in drawn


def test_markup_in_names_is_text(tmp_path):
    screen = console(force_terminal=False)
    with RunLog(tmp_path, screen, total_steps=4) as log:
        log.log_evaluation(1, "[red]dev[/red]", {"loss": 1.0})
        log.log_sections(1, [sample("[b][/i]")])
    assert "[red]dev[/red] loss 1.0000" in screen.file.getvalue()
