import json
import logging
import math
import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest

from train.report import read_sections, write_report

CONFIG = {
    "type": "train.config:TrainConfig",
    "recipe": "gpt_tiny",
    "data": {"type": "data:TextConfig", "source": "tiny_shakespeare"},
    "total_steps": 300,
}
ENVIRONMENT = {"device": "cpu", "parameters": 12345, "command": "jaxnlp train gpt_tiny", "versions": {"jax": "0.10"}}
ENVIRONMENT["metrics"] = {
    "loss": {"of": "tokens", "unit": "nats", "better": "lower"},
    "accuracy": {"of": "tokens", "unit": "", "better": "higher"},
}
PLOTS = ["accuracy.svg", "gradient_norm.svg", "learning_rate.svg", "loss.svg", "throughput.svg"]
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def train_row(step, **changes):
    speeds = {"learning_rate": 1e-3 / step, "tokens_per_second": 50000.0 + step, "train_seconds": 0.1 * step}
    return {"step": step, "split": "train", "loss": 1.0 + 3 / step} | speeds | changes


def validation_row(step, loss):
    return {"step": step, "split": "validation", "loss": loss, "train_seconds": 0.1 * step}


ROWS = [train_row(step) for step in range(1, 301)] + [validation_row(150, 1.25), validation_row(300, 1.5)]


def section(step, name, kind, keep="latest", **content):
    content["type"] = f"jaxnlp.pages.content:{kind}"
    return {"type": "train.report.sections:LoggedSection", "step": step, "name": name, "keep": keep, "content": content}


def sample(step):
    return section(step, "Samples", "MarkedText", "all", paragraphs=[[["The ", True], [f"end {step}", False]]])


CURVE = {"type": "jaxnlp.pages.content:Line", "name": "each", "x": [1, 2], "y": [2.5, 2.0]}
SECTIONS = [
    section(300, "Answers", "Table", header=["given", "share"], rows=[["Rome", 0.5]], bars=[1], marks=["good"]),
    section(300, "By position", "Lines", lines=[CURVE], x_label="position", y_label="Perplexity"),
    section(300, "By word", "Lines", lines=[CURVE, CURVE], x_label="word", y_label="Perplexity"),
    section(300, "Attention", "HeatMap", rows=["R"], columns=["A", "b"], weights=[[0.5, 1.0]]),
    sample(150),
    sample(300),
    section(300, "Filters", "Picture", png=PNG, alt="filters"),
]


def write_run(folder, rows=ROWS, sections=SECTIONS):
    folder.mkdir(exist_ok=True, parents=True)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / "environment.json").write_text(json.dumps(ENVIRONMENT))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    if sections is not None:
        (folder / "sections.jsonl").write_text("".join(json.dumps(each) + "\n" for each in sections))
    return folder


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """The report of a run with a section of each kind. Only to be read."""
    return write_report(write_run(tmp_path_factory.mktemp("run")))


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
        if tag not in ("meta", "wbr", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def values(self, name):
        return [attributes[name] for _, attributes in self.seen if name in attributes]


@pytest.mark.thorough
def test_report_is_one_well_formed_file_that_asks_for_no_other(report):
    text = report.read_text()
    page = Elements(text)
    assert not {tag for tag, _ in page.seen} & {"script", "link", "iframe", "image", "object", "base", "a"}
    assert page.values("src") == [f"data:image/png;base64,{PNG}"]
    targets = [target.removeprefix("#") for name in ("href", "xlink:href") for target in page.values(name)]
    targets += [part.partition(")")[0].removeprefix("#") for part in text.split("url(")[1:]]
    assert targets
    assert set(targets) <= set(page.values("id"))
    assert "://" not in text
    assert "@import" not in text


def test_ids_are_unique_across_the_plots_of_a_page(report):
    ids = Elements(report.read_text()).values("id")
    assert len(ids) > 20
    assert len(ids) == len(set(ids))


def test_plots_are_well_formed_files_of_their_own(report):
    plots = report.parent / "plots"
    assert sorted(path.name for path in plots.iterdir()) == PLOTS
    for name in PLOTS:
        assert ElementTree.parse(plots / name).getroot().tag.endswith("svg")


def test_sections_have_the_order_in_which_their_names_came(report):
    names = ["Answers", "By position", "By word", "Attention", "Samples", "Filters", "Last measured", "Config"]
    assert re.findall(r"<h2>([\w ]+?)(?: <small>|</h2>)", report.read_text())[: len(names)] == names


@pytest.mark.thorough
def test_same_folder_gives_the_same_bytes_in_another_place_and_process(tmp_path):
    here = write_run(tmp_path / "here" / "run")
    there = shutil.copytree(here, tmp_path / "there" / "run")
    printed = subprocess.run(
        [sys.executable, "-m", "jaxnlp", "report", str(there)],
        cwd=Path(__file__).parents[3],
        env=os.environ | {"PYTHONHASHSEED": "7"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert Path(printed.strip()) == there / "report.html"
    write_report(here)
    write_report(here)
    assert files_of(here) == files_of(there)


@pytest.mark.sweep(2)
@pytest.mark.parametrize(
    ("rows", "sections"),
    [
        ([row for row in ROWS if row["split"] == "train"], SECTIONS[4:6]),
        ([row for row in ROWS if row["split"] == "validation"], None),
        ([train_row(1)], None),
        ([train_row(1), validation_row(1, 2.0)], []),
        ([{"step": 5, "split": "dev", "accuracy": 0.5}], None),
        ([], None),
    ],
    ids=["no validation", "no training", "one point", "one point each", "no loss", "nothing yet"],
)
def test_report_of_a_sparse_run_is_whole_and_its_folders_are_no_news(tmp_path, caplog, rows, sections):
    caplog.set_level(logging.INFO, "jaxnlp")
    page = Elements(write_report(write_run(tmp_path, rows, sections)).read_text())
    assert sum(tag == "svg" for tag, _ in page.seen) == 7
    assert caplog.messages == []


@pytest.mark.sweep(1)
@pytest.mark.parametrize("loss", [math.nan, math.inf, -math.inf])
def test_losses_that_are_not_finite_are_named_and_do_not_hide_the_others(tmp_path, loss):
    rows = [*ROWS[:100], train_row(101, loss=loss), *ROWS[101:], validation_row(301, loss)]
    text = write_report(write_run(tmp_path, rows)).read_text()
    Elements(text)
    assert "2 of 303 logged values of loss are not finite; the first: train, step 101." in text
    assert "1.2500" in text


@pytest.mark.thorough
def test_report_of_losses_that_are_never_finite_is_whole(tmp_path):
    rows = [train_row(step, loss=math.nan, tokens_per_second=math.nan) for step in range(1, 80)]
    text = write_report(write_run(tmp_path, rows)).read_text()
    Elements(text)
    assert text.count("nothing measured") == 6  # a wide and a narrow chart for each unit, gradient norm, throughput


def test_the_folder_is_in_the_title_and_further_files_are_linked(tmp_path):
    run = write_run(tmp_path / "<mine>")
    for name in ("predictions.csv", "a b#?.html", "out/test.txt", "out/deep/x", ".lock", "checkpoints/5", "plots/old"):
        (run / name).parent.mkdir(exist_ok=True, parents=True)
        (run / name).touch()
    text = write_report(run).read_text()
    assert "<title>&lt;mine&gt; (gpt_tiny): run report</title>" in text
    page = Elements(text)
    assert [attributes["href"] for tag, attributes in page.seen if tag == "a"] == [
        "./a%20b%23%3F.html",
        "./out/test.txt",
        "./predictions.csv",
    ]
    assert ">a b#?.html</a>" in text


@pytest.mark.thorough
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


def write_lines(path, *lines):
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines) + "\n")
    return path


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", r"sections\.jsonl, line 2: "),
        ("[1]", r"sections\.jsonl, line 2: expected an object"),
        (section(1, "a", "Video"), r"sections\.jsonl, line 2: .*:Video' does not exist"),
        (section(1, "a", "Table", header=["a"]), r"sections\.jsonl, line 2: section\.content: .*'rows'"),
    ],
)
def test_a_broken_or_unknown_section_is_named_by_file_and_line(tmp_path, line, message):
    path = write_lines(write_run(tmp_path) / "sections.jsonl", sample(1), line, sample(3))
    for read in (lambda: read_sections(path), lambda: write_report(tmp_path)):
        with pytest.raises(ValueError, match=message):
            read()


def test_a_half_written_last_section_is_dropped(tmp_path):
    path = write_lines(tmp_path / "sections.jsonl", sample(1), '{"step": 2, "na')
    assert [found.step for found in read_sections(path)] == [1]


def test_a_section_with_other_line_ends_in_its_text_is_one_line(tmp_path):
    text = "one\u2028two\x85three\x0bfour"
    row = section(1, "a", "MarkedText", paragraphs=[[[text, False]]])
    (tmp_path / "sections.jsonl").write_text(json.dumps(row, ensure_ascii=False) + "\n", encoding="utf-8")
    assert read_sections(tmp_path / "sections.jsonl")[0].content.paragraphs == (((text, False),),)


def test_a_malformed_declaration_of_metrics_is_named_by_file(tmp_path):
    environment = ENVIRONMENT | {"metrics": {"loss": {"better": "up"}}}
    (write_run(tmp_path) / "environment.json").write_text(json.dumps(environment))
    with pytest.raises(ValueError, match=r"environment\.json: metrics\.loss\.better: expected lower or higher"):
        write_report(tmp_path)


def test_lone_surrogates_of_sampled_bytes_do_not_stop_the_report(tmp_path):
    sections = [section(1, "a\udc80", "MarkedText", paragraphs=[[["b\udc80", True]]])]
    assert "<pre><b>b?</b></pre>" in write_report(write_run(tmp_path, ROWS[:3], sections)).read_text()
