import json

import pytest

from train.report.logged_run import LoggedRun, read_metrics


def train_row(step):
    return {"step": step, "split": "train", "loss": 1.0 / step, "train_seconds": 0.1 * step}


def test_half_written_last_line_is_dropped(tmp_path):
    path = tmp_path / "metrics.jsonl"
    whole = json.dumps(train_row(1)) + "\n"
    for end in ('{"step": 2, "spl', "{", '{"step": 2, "split": "tr\xc3', "\n"):
        path.write_bytes(whole.encode() + end.encode("latin-1"))
        assert read_metrics(path) == [train_row(1)]


def test_last_line_without_its_newline_counts_when_it_is_whole(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text(json.dumps(train_row(1)) + "\n" + json.dumps(train_row(2)))
    assert read_metrics(path) == [train_row(1), train_row(2)]


def test_broken_line_elsewhere_is_named(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text(json.dumps(train_row(1)) + '\n{"step": 2, "spl\n' + json.dumps(train_row(3)) + "\n")
    with pytest.raises(ValueError, match=r"metrics\.jsonl, line 2: "):
        read_metrics(path)


@pytest.mark.parametrize("row", [{"step": 3}, {"split": "train"}, 7])
def test_row_without_step_or_split_is_named(tmp_path, row):
    path = tmp_path / "metrics.jsonl"
    path.write_text(json.dumps(train_row(1)) + "\n" + json.dumps(row) + "\n")
    with pytest.raises(ValueError, match=r"metrics\.jsonl, line 2: expected (a field (step|split)|an object)"):
        read_metrics(path)


def test_throughput_counts_what_the_progress_metric_counts():
    environment = {"metrics": {"loss": {"of": "questions"}, "pieces": {"of": "tokens"}}}
    assert LoggedRun("a", {}, environment, []).counted == "questions"
    assert LoggedRun("a", {}, environment | {"progress": "pieces"}, []).counted == "tokens"


def test_values_that_are_not_finite_count_for_no_time_and_no_speed():
    rows = [train_row(1), train_row(2) | {"tokens_per_second": 3.0}, train_row(3) | {"train_seconds": None}]
    run = LoggedRun("a", {"total_steps": 3}, {}, rows)
    assert (run.step, run.finished, run.train_seconds, run.speed) == (3, True, 0.2, 3.0)
    empty = LoggedRun("a", {}, {}, [])
    assert (empty.step, empty.finished, empty.train_seconds, empty.speed, empty.best("loss")) == (0, False, *[None] * 3)
