import json
import math
import os
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
import tyro

from train.report import main, read_metrics, write_report

CONFIG = {
    "type": "train.config:TrainConfig",
    "recipe": "gpt_tiny",
    "data": {"type": "data:TextConfig", "source": "tiny_shakespeare"},
    "total_steps": 300,
}
ENVIRONMENT = {"device": "cpu", "parameters": 12345, "command": "python -m train gpt_tiny", "versions": {"jax": "0.10"}}
PLOTS = ["learning_rate.svg", "loss.svg", "throughput.svg"]


def train_row(step, **changes):
    speeds = {"learning_rate": 1e-3 / step, "tokens_per_second": 50000.0 + step, "train_seconds": 0.1 * step}
    return {"step": step, "split": "train", "loss": 1.0 + 3 / step} | speeds | changes


def validation_row(step, loss):
    return {"step": step, "split": "validation", "loss": loss, "train_seconds": 0.1 * step}


ROWS = [train_row(step) for step in range(1, 301)] + [validation_row(150, 1.25), validation_row(300, 1.5)]
SAMPLES = [{"step": 150, "prompt": "The ", "text": "The end"}, {"step": 300, "prompt": "The ", "text": "The start"}]


def write_run(folder, rows=ROWS, samples=SAMPLES):
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / "environment.json").write_text(json.dumps(ENVIRONMENT))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    if samples is not None:
        (folder / "samples.jsonl").write_text("".join(json.dumps(sample) + "\n" for sample in samples))
    return folder


WORDS = {"step": 300, "positions": [6.0, 5.0], "scored": 70, "neighbours": [{"word": "a", "near": [["b", 0.5]]}]}


def files_of(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


class Elements(HTMLParser):
    """Checks that the elements of a page are properly nested; keeps their attributes."""

    def __init__(self, text):
        super().__init__()
        self.open, self.seen = [], []
        self.feed(text)
        assert not self.open

    def handle_startendtag(self, tag, attributes):
        self.seen.append((tag, dict(attributes)))

    def handle_starttag(self, tag, attributes):
        self.handle_startendtag(tag, attributes)
        if tag not in ("meta", "wbr"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def values(self, name):
        return [attributes[name] for _, attributes in self.seen if name in attributes]


def test_report_is_one_well_formed_file_that_asks_for_no_other(tmp_path):
    text = write_report(write_run(tmp_path)).read_text()
    page = Elements(text)
    assert not {tag for tag, _ in page.seen} & {"script", "link", "img", "iframe", "image", "object", "base", "a"}
    assert not page.values("src")
    targets = [target.removeprefix("#") for name in ("href", "xlink:href") for target in page.values(name)]
    targets += [part.partition(")")[0].removeprefix("#") for part in text.split("url(")[1:]]
    assert targets
    assert set(targets) <= set(page.values("id"))
    assert "http" not in text
    assert "@import" not in text


def test_ids_are_unique_across_the_plots_of_a_page(tmp_path):
    ids = Elements(write_report(write_run(tmp_path)).read_text()).values("id")
    assert len(ids) > 20
    assert len(ids) == len(set(ids))


def test_plots_are_well_formed_files_of_their_own(tmp_path):
    write_report(write_run(tmp_path))
    assert sorted(path.name for path in (tmp_path / "plots").iterdir()) == PLOTS
    for name in PLOTS:
        assert ElementTree.parse(tmp_path / "plots" / name).getroot().tag.endswith("svg")


def test_what_a_run_wrote_about_words_is_a_section_and_a_plot(tmp_path):
    (write_run(tmp_path) / "words.json").write_text(json.dumps(WORDS))
    text = write_report(tmp_path).read_text()
    ids = Elements(text).values("id")
    assert len(ids) == len(set(ids))
    assert "<h2>Words</h2>" in text
    assert sorted(path.name for path in (tmp_path / "plots").iterdir()) == sorted([*PLOTS, "positions.svg"])
    assert ElementTree.parse(tmp_path / "plots" / "positions.svg").getroot().tag.endswith("svg")


def test_same_folder_gives_the_same_bytes_in_another_place_and_process(tmp_path):
    here = write_run(tmp_path / "here")
    there = shutil.copytree(here, tmp_path / "there")
    printed = subprocess.run(
        [sys.executable, "-m", "train.report", str(there)],
        cwd=Path(__file__).parents[2],
        env=os.environ | {"PYTHONHASHSEED": "7"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert Path(printed.strip()) == there / "report.html"
    write_report(here)
    write_report(here)
    assert files_of(here) == files_of(there)


@pytest.mark.parametrize(
    ("rows", "samples"),
    [
        ([row for row in ROWS if row["split"] == "train"], SAMPLES),
        ([row for row in ROWS if row["split"] == "validation"], None),
        ([train_row(1)], None),
        ([train_row(1), validation_row(1, 2.0)], []),
        ([{"step": 5, "split": "dev", "accuracy": 0.5}], None),
        ([], None),
    ],
    ids=["no validation", "no training", "one point", "one point each", "no loss", "nothing yet"],
)
def test_report_of_a_sparse_run_is_whole(tmp_path, rows, samples):
    page = Elements(write_report(write_run(tmp_path, rows, samples)).read_text())
    assert sum(tag == "svg" for tag, _ in page.seen) == 4


@pytest.mark.parametrize("loss", [math.nan, math.inf, -math.inf])
def test_losses_that_are_not_finite_are_named_and_do_not_hide_the_others(tmp_path, loss):
    rows = [*ROWS[:100], train_row(101, loss=loss), *ROWS[101:], validation_row(301, loss)]
    text = write_report(write_run(tmp_path, rows)).read_text()
    Elements(text)
    assert "2 of 303 logged losses are not finite; the first: train, step 101." in text
    assert "1.2500" in text


def test_report_of_losses_that_are_never_finite_is_whole(tmp_path):
    rows = [train_row(step, loss=math.nan, tokens_per_second=math.nan) for step in range(1, 80)]
    text = write_report(write_run(tmp_path, rows)).read_text()
    Elements(text)
    assert text.count("nothing measured") == 3


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
    with pytest.raises(ValueError, match=r"metrics\.jsonl, line 2: expected an object with .*(step|split)"):
        read_metrics(path)


@pytest.mark.parametrize("step", ["replace", "write_bytes"])
def test_failed_write_leaves_the_old_report_and_no_remains(tmp_path, monkeypatch, step):
    write_report(write_run(tmp_path))
    before = files_of(tmp_path)
    write_run(tmp_path, ROWS[:50])

    def fill_the_disk(path, content):
        path.write_text("half of")
        raise OSError("disk full")

    if step == "write_bytes":
        monkeypatch.setattr(Path, "write_bytes", fill_the_disk)
    else:
        monkeypatch.setattr(os, "replace", fill_the_disk_at_the_end)
    with pytest.raises(OSError, match="disk full"):
        write_report(tmp_path)
    after = files_of(tmp_path)
    assert after.keys() == before.keys()
    assert after["report.html"] == before["report.html"]
    assert all(after[f"plots/{name}"] == before[f"plots/{name}"] for name in PLOTS)


def fill_the_disk_at_the_end(partial, path):
    raise OSError("disk full")


@pytest.mark.parametrize("name", ["config.json", "environment.json", "metrics.jsonl"])
def test_command_names_a_missing_file_in_one_line_and_exits_with_2(tmp_path, capsys, name):
    (write_run(tmp_path) / name).unlink()
    with pytest.raises(SystemExit) as stop:
        tyro.cli(main, args=[str(tmp_path)])
    assert stop.value.code == 2
    captured = capsys.readouterr()
    assert captured.err.startswith(f"error: {tmp_path / name} is missing")
    assert captured.err.count("\n") == 1
    assert not captured.out
    assert not (tmp_path / "report.html").exists()


def test_command_names_a_missing_folder_and_a_broken_file(tmp_path, capsys):
    (write_run(tmp_path) / "config.json").write_text('{"recipe": ')
    for folder, expected in ((tmp_path / "none", "none"), (tmp_path, "config.json: ")):
        with pytest.raises(SystemExit) as stop:
            tyro.cli(main, args=[str(folder)])
        assert stop.value.code == 2
        error = capsys.readouterr().err
        assert expected in error
        assert error.count("\n") == 1
