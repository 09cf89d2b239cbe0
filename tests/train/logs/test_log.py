import contextlib
import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tensorboardX.proto.event_pb2 import Event

from jaxnlp.pages.content import HeatMap, Table
from jaxnlp.tasks import Section
from tests.train.log_helpers import console, log_train, sample, step_metrics, write_steps
from train.logs.log import RunLog
from train.report import read_sections


def text_of(row):
    return row["content"]["paragraphs"][0][1][0]


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


def test_metrics_wait_on_the_device_until_they_are_logged(tmp_path, clock, monkeypatch):
    copies = []

    def get(tree):
        if isinstance(tree, list):  # of the metrics of steps
            copies.append(len(tree))
        return jax.tree.map(np.asarray, tree)

    monkeypatch.setattr("train.logs.log.jax.device_get", get)
    with RunLog(tmp_path, console(), total_steps=1000) as log:
        for _ in range(40):
            clock.now += 1.0
            log.collect(step_metrics(1.0, 1))
        assert copies == [10]  # once, with the first estimate
        log_train(log, 40)
    assert copies == [10, 40]
    assert rows(tmp_path)[0]["step"] == 40


def test_throughput_and_its_name_are_those_of_the_progress_metric(tmp_path, clock):
    def metrics(pieces):
        return step_metrics(2.0, 4) | {"sst/loss": (jnp.float32(pieces), jnp.float32(pieces))}

    screen = console(force_terminal=False)
    with RunLog(tmp_path, screen, total_steps=1, progress="sst/loss", unit="pieces") as log:
        log.collect(metrics(100.0))
        clock.now += 5.0
        log_train(log, 1)
    assert rows(tmp_path)[0]["pieces_per_second"] == 20.0
    assert "tokens_per_second" not in rows(tmp_path)[0]
    assert "20 pieces/s" in screen.file.getvalue()


def test_values_that_are_not_finite_can_be_logged_and_read(tmp_path, clock):
    with RunLog(tmp_path, console(), total_steps=1) as log:
        log.collect(step_metrics(float("nan"), 4))
        clock.now += 5.0
        log_train(log, 1)
        log.log_evaluation(1, "validation", {"loss": float("inf")})
    found = rows(tmp_path)
    assert math.isnan(found[0]["loss"])
    assert found[1]["loss"] == math.inf


def test_evaluation_row_names_its_split(tmp_path, clock):
    terminal = console()
    with RunLog(tmp_path, terminal, total_steps=10, train_seconds=3.0) as log:
        log.log_evaluation(4, "validation", {"loss": -1e-9, "accuracy": 0.25})
    assert rows(tmp_path) == [
        {"step": 4, "split": "validation", "loss": -1e-9, "accuracy": 0.25, "train_seconds": 3.0},
    ]
    assert terminal.file.getvalue() == "step 4/10  validation loss 0.0000  accuracy 0.2500\n"


def test_rows_are_on_disk_as_soon_as_they_are_logged(tmp_path):
    with RunLog(tmp_path, console(), total_steps=10) as log:
        log.log_evaluation(1, "validation", {"loss": 1.5})
        log.log_sections(1, [sample("b"), Section("t", Table(("n",), ((np.float32(0.5),),)))])
        assert [row["step"] for row in rows(tmp_path)] == [1]
        assert rows(tmp_path, "sections.jsonl") == [
            {
                "type": "train.report.sections:LoggedSection",
                "step": 1,
                "name": "samples",
                "keep": "all",
                "content": {
                    "type": "jaxnlp.pages.content:MarkedText",
                    "paragraphs": [[["a", True], ["b", False]]],
                    "note": "",
                },
            },
            {
                "type": "train.report.sections:LoggedSection",
                "step": 1,
                "name": "t",
                "keep": "latest",
                "content": {
                    "type": "jaxnlp.pages.content:Table",
                    "header": ["n"],
                    "rows": [[0.5]],
                    "marks": [],
                    "bars": [],
                    "note": "",
                    "folded": False,
                },
            },
        ]


def test_a_section_that_the_report_could_not_draw_is_refused_and_nothing_is_written(tmp_path):
    bad = Section("heat", HeatMap(("r",), ("a",), (("x",),)))
    message = r"section 'heat': section\.content\.weights\[0\]\[0\]: expected float, got 'x'"
    with RunLog(tmp_path, console(), total_steps=10) as log, pytest.raises(ValueError, match=message):
        log.log_sections(1, [sample("b"), bad])
    assert rows(tmp_path, "sections.jsonl") == []


def test_lone_surrogates_of_sampled_bytes_are_read_back(tmp_path):
    with RunLog(tmp_path, console(), total_steps=10) as log:
        log.log_sections(1, [sample("b\udc80")])
    assert text_of(rows(tmp_path, "sections.jsonl")[0]) == "b\udc80"
    assert read_sections(tmp_path / "sections.jsonl")[0].content.paragraphs[0][1] == ("b\udc80", False)


@pytest.mark.parametrize("last", [0, 3, 9])
def test_continued_run_drops_what_was_written_after_its_checkpoint(tmp_path, last):
    write_steps(tmp_path, [1, 2, 3, 4, 5])
    write_steps(tmp_path, [last + 1])
    expected = [*(step for step in range(1, 6) if step <= last), last + 1]
    for name in ("metrics.jsonl", "sections.jsonl"):
        assert [row["step"] for row in rows(tmp_path, name)] == expected


@pytest.mark.parametrize("kept_characters", [1, 10, -2])
def test_half_written_last_line_is_dropped(tmp_path, kept_characters):
    write_steps(tmp_path, [1, 2, 3])
    for name in ("metrics.jsonl", "sections.jsonl"):
        path = tmp_path / name
        lines = path.read_text().splitlines(keepends=True)
        path.write_text("".join(lines[:2]) + lines[2][:kept_characters])
    write_steps(tmp_path, [4])
    for name in ("metrics.jsonl", "sections.jsonl"):
        assert [row["step"] for row in rows(tmp_path, name)] == [1, 2, 4]


def test_last_line_without_its_line_end_stays_a_line(tmp_path):
    write_steps(tmp_path, [1, 2])
    path = tmp_path / "metrics.jsonl"
    path.write_text(path.read_text().rstrip("\n"))
    write_steps(tmp_path, [3])
    assert [row["step"] for row in rows(tmp_path)] == [1, 2, 3]


def test_last_line_cut_inside_a_character_is_dropped(tmp_path):
    write_steps(tmp_path, [1, 2], text="汉字")
    path = tmp_path / "sections.jsonl"
    content = path.read_bytes()
    path.write_bytes(content[: content.rindex("字".encode()) + 1])
    write_steps(tmp_path, [3])
    assert [row["step"] for row in rows(tmp_path, "sections.jsonl")] == [1, 3]


@pytest.mark.parametrize("separator", ["\u2028", "\x85", "\x0c", "\n"])
def test_sections_keep_characters_that_some_count_as_line_ends(tmp_path, separator):
    write_steps(tmp_path, [1, 2, 3], text=f"one{separator}two")
    write_steps(tmp_path, [4])
    kept = [json.loads(line) for line in (tmp_path / "sections.jsonl").read_bytes().split(b"\n") if line]
    assert [(row["step"], text_of(row)) for row in kept[:3]] == [(n, f"one{separator}two{n}") for n in (1, 2, 3)]


def test_tensorboard_file_holds_every_metric_by_split(tmp_path, clock):
    with RunLog(tmp_path, console(), total_steps=10) as log:
        log.collect(step_metrics(2.5, 10))
        clock.now += 1.0
        log_train(log, 1)
        log.log_evaluation(1, "validation", {"loss": 1.5})
        log.log_sections(1, [sample("b")])
    found = {(tag, step): value for tag, step, value in events(tmp_path)}
    assert found["train/loss", 1] == 2.5
    assert found["train/tokens_per_second", 1] == 10.0
    assert found["train/learning_rate", 1] == 0.5
    assert found["validation/loss", 1] == 1.5
    assert any(tag.startswith("samples") for tag, _ in found)


def test_finished_run_that_is_entered_again_writes_nothing(tmp_path):
    write_steps(tmp_path, [1, 2])
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with RunLog(tmp_path, console(), total_steps=2, first_step=2):
        pass
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


@pytest.fixture
def five_steps(tmp_path):
    write_steps(tmp_path, [1, 2, 3, 4, 5])
    return tmp_path


def warnings_on_continuing(folder, first_step, evaluations=None):
    screen = console(force_terminal=False)
    with RunLog(folder, screen, total_steps=10, first_step=first_step, evaluations=evaluations):
        pass
    return " ".join(screen.file.getvalue().split())


@pytest.mark.parametrize(
    ("kept", "missing"),
    [(5, None), (3, "4 to 5"), (0, "1 to 5"), (None, "1 to 5")],
    ids=["all", "three", "none", "no file"],
)
def test_missing_history_is_reported_once_with_its_first_step(five_steps, kept, missing):
    path = five_steps / "metrics.jsonl"
    if kept is None:
        path.unlink()
    else:
        path.write_text("".join(path.read_text().splitlines(keepends=True)[:kept]))
    text = warnings_on_continuing(five_steps, 5)
    assert text.count("warning: ") == (0 if missing is None else 1)
    if missing is not None:
        assert f"metrics.jsonl has no rows of steps {missing}" in text


@pytest.mark.parametrize("lost", ["head", "gap", "sections"])
def test_history_lost_before_the_last_step_is_reported(tmp_path, clock, lost):
    with RunLog(tmp_path, console(), total_steps=10) as log:
        for step in (1, 2, 3):
            log.collect(step_metrics(1.0, 50))
            clock.now += 1.0
            log_train(log, step)
            log.log_evaluation(step, "validation", {"loss": 1.0})
    assert warnings_on_continuing(tmp_path, 3, evaluations=3) == ""
    path = tmp_path / "metrics.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    if lost == "sections":
        (tmp_path / "sections.jsonl").unlink()
    else:
        del lines[slice(0, 2) if lost == "head" else slice(2, 4)]
        path.write_text("".join(lines))
    text = warnings_on_continuing(tmp_path, 3, evaluations=3)
    assert text.count("warning: ") == 1
    assert ("sections.jsonl was deleted" if lost == "sections" else "has 2 of 3 evaluations up to step 3") in text


def test_a_run_whose_first_save_was_interrupted_says_that_it_starts_again(five_steps):
    assert "has metrics up to step 5 but no checkpoint" in warnings_on_continuing(five_steps, 0)


def test_a_new_run_misses_no_history(tmp_path):
    assert warnings_on_continuing(tmp_path, 0) == ""


def test_only_process_0_writes_and_prints(tmp_path, clock, monkeypatch):
    monkeypatch.setattr("jax.process_index", lambda: 1)
    write_nothing = console(force_terminal=True)
    with RunLog(tmp_path, write_nothing, total_steps=20) as log:
        for _ in range(20):
            clock.now += 5.0
            log.collect(step_metrics(2.5, 10))
        log_train(log, 20)
        log.log_evaluation(20, "validation", {"loss": 1.5})
        log.log_sections(20, [sample("b")])
        assert log.train_seconds == 100.0
    assert not list(tmp_path.iterdir())
    assert write_nothing.file.getvalue() == ""
    with RunLog(tmp_path, write_nothing, total_steps=20, writes=True) as log:
        log.log_evaluation(20, "validation", {"loss": 1.5})
    assert len(rows(tmp_path)) == 1
