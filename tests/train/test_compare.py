import json
import re
import xml.etree.ElementTree
from urllib.parse import unquote

import pytest

from train.compare import (
    curves,
    differing_fields,
    flat_fields,
    main,
    read_runs,
    table_of_options,
    table_of_results,
    write_comparison,
)

LOSS = {"of": "tokens", "unit": "nats", "better": "lower"}
SCORE = {"of": "questions", "unit": "", "better": "higher"}


def write_run(folder, losses, *, config=None, metrics=None, total_steps=2, scores=()):
    """A run with a validation row a step."""
    folder.mkdir(parents=True)
    model = {"type": "jaxnlp.models.gpt:GPTConfig", "width": 8} | (config or {})
    whole = {"type": "train.config:TrainConfig", "recipe": "a", "total_steps": total_steps, "model": model}
    (folder / "config.json").write_text(json.dumps(whole))
    environment = {"metrics": metrics or {"loss": LOSS}, "parameters": 1_234_567, "best_metric": "loss"}
    (folder / "environment.json").write_text(json.dumps(environment))
    rows = [
        {"step": step, "split": "validation", "loss": loss, "train_seconds": 60.0 * step}
        for step, loss in enumerate(losses, 1)
    ]
    for row, score in zip(rows, scores, strict=False):
        row["score"] = score
    rows += [{"step": 1, "split": "train", "tokens_per_second": speed} for speed in (50_000.0, 51_000.0, 99_000.0)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


@pytest.fixture
def three(tmp_path):
    return [
        write_run(tmp_path / "one", [3.0, 2.0]),
        write_run(tmp_path / "two", [3.0, 1.5], config={"width": 16}),
        write_run(tmp_path / "<three>", [2.5], config={"depth": 2}),
    ]


def test_the_results_are_the_values_time_speed_and_size(three):
    table = table_of_results(read_runs(three))
    assert table.header == ("run", "loss", "training time", "speed", "parameters", "steps")
    assert table.rows == (
        ("one", 2.0, "2\u00a0min\u00a000\u00a0s", "51\u00a0k\u00a0tokens/s", "1.23 M", "2"),
        ("two", 1.5, "2\u00a0min\u00a000\u00a0s", "51\u00a0k\u00a0tokens/s", "1.23 M", "2"),
        ("<three>", 2.5, "1\u00a0min\u00a000\u00a0s", "51\u00a0k\u00a0tokens/s", "1.23 M", "1 of 2"),
    )


def test_all_values_of_a_run_are_those_of_its_best_checkpoint(tmp_path):
    folder = write_run(
        tmp_path / "one", [3.0, 2.0, 2.5], scores=[0.1, 0.2, 0.9], metrics={"loss": LOSS, "score": SCORE}
    )
    (run,) = read_runs([folder])
    assert (run.value("loss"), run.value("score")) == (2.0, 0.2)
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    del rows[1]["score"]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert read_runs([folder])[0].value("score") is None


def test_only_options_that_differ_have_a_column(three):
    runs = read_runs(three)
    assert differing_fields(runs) == ["model.width", "model.depth"]
    table = table_of_options(runs)
    assert table.header == ("run", "model.width", "model.depth")
    assert table.rows == (("one", "8", ""), ("two", "16", ""), ("<three>", "8", "2"))


def test_the_page_shows_results_before_options_and_curves(three, tmp_path):
    def headings(folders):
        return re.findall("<h2>(.*?)</h2>", write_comparison(folders, tmp_path / "page.html").read_text())

    assert headings(three) == ["Results", "Options that differ", "Validation curves"]
    assert headings([three[0], three[0]]) == ["Results", "Validation curves"]


def test_the_names_of_runs_link_to_the_reports_that_there_are(three, tmp_path):
    for folder in (three[0], three[2]):
        (folder / "report.html").touch()
    page = write_comparison(three, tmp_path / "pages" / "page.html")
    links = re.findall('<a href="(.*?)">(.*?)</a>', page.read_text())
    assert links == 2 * [("../one/report.html", "one"), ("../%3Cthree%3E/report.html", "&lt;three&gt;")]
    assert all((page.parent / unquote(address)).is_file() for address, _ in links)


def test_values_in_different_units_have_columns_and_curves_of_their_own(tmp_path):
    units = {
        "words": {"loss": LOSS, "perplexity": LOSS | {"unit": "choices"}, "score": SCORE},
        "texts": {"loss": LOSS | {"unit": "squared error", "of": "texts"}, "score": SCORE | {"of": "texts"}},
        "signs": {
            "loss": LOSS | {"of": "characters"},
            "perplexity": LOSS | {"unit": "choices", "of": "characters"},
            "score": SCORE | {"of": "lines"},
        },
    }
    folders = [write_run(tmp_path / name, [2.0], metrics=metrics) for name, metrics in units.items()]
    for folder in folders:
        row = {"step": 1, "split": "validation", "loss": 2.0, "perplexity": 7.0, "score": 0.5}
        (folder / "metrics.jsonl").write_text(json.dumps(row) + "\n")
    runs = read_runs(folders)
    table = table_of_results(runs)
    titles = [title for title in table.header if title.startswith(("loss", "perplexity", "score"))]
    columns = {title: [row[table.header.index(title)] for row in table.rows] for title in titles}
    assert columns == {
        "loss (nats per token)": [2.0, None, None],
        "loss (squared error per text)": [None, 2.0, None],
        "loss (nats per character)": [None, None, 2.0],
        "perplexity (over tokens)": [7.0, None, None],
        "perplexity (over characters)": [None, None, 7.0],
        "score": [0.5, 0.5, 0.5],
    }
    drawn = {lines.y_label: [line.name for line in lines.lines] for lines in curves(runs).values()}
    assert drawn["Loss (squared error per text), lower is better"] == ["texts"]
    assert drawn["Perplexity (over tokens), lower is better"] == ["words"]
    assert len(drawn) == 6


def test_metrics_are_written_as_they_are_declared(tmp_path):
    metrics = {"loss": LOSS, "score": SCORE | {"title": "ScORE"}}
    folders = [write_run(tmp_path / name, [3.0], metrics=metrics, scores=[0.5]) for name in "ab"]
    assert table_of_results(read_runs(folders)).header[-1] == "ScORE"
    page = write_comparison(folders, tmp_path / "page.html").read_text()
    assert 'aria-label="ScORE' in page
    assert "ScORE, higher is better" in page
    assert "Loss (nats per token), lower is better" in page


def test_a_metric_that_a_run_lacks_is_left_empty(tmp_path):
    folders = [
        write_run(tmp_path / "a", [3.0, 2.0]),
        write_run(tmp_path / "b", [3.0, 2.5], metrics={"loss": LOSS, "score": SCORE}, scores=[0.7, 0.4]),
    ]
    table = table_of_results(read_runs(folders))
    assert (table.header[1], table.header[-1]) == ("loss", "score")
    assert [(row[1], row[-1]) for row in table.rows] == [(2.0, None), (2.5, 0.4)]


def test_values_of_training_batches_are_no_results(tmp_path):
    folders = [write_run(tmp_path / "a", [3.0, 2.0]), write_run(tmp_path / "failed", [])]
    row = {"step": 1, "split": "train", "loss": 0.1, "train_seconds": 1.0}
    (folders[1] / "metrics.jsonl").write_text(json.dumps(row) + "\n")
    assert [row[1] for row in table_of_results(read_runs(folders)).rows] == [2.0, None]
    page = write_comparison(folders, tmp_path / "page.html", ["failed failed with status 1: error: <disk>"]).read_text()
    assert "<p>failed failed with status 1: error: &lt;disk&gt;</p>" in page


def test_the_page_is_one_well_formed_file_with_a_curve_for_each_run(three, tmp_path):
    text = write_comparison(three, tmp_path / "new" / "page.html").read_text()
    xml.etree.ElementTree.fromstring(re.sub(r"(<meta [^>]*)>", r"\1/>", text.partition("\n")[2]))
    assert "://" not in re.sub(r'xmlns[:a-z]*="[^"]*"', "", text)
    assert "<three>" not in text
    for name in ("one", "two", "&lt;three&gt;"):
        assert text.count(name) >= 2  # in the table and in the legend
    assert "Unfinished: &lt;three&gt;" in text


def test_runs_of_one_name_are_distinguished_by_their_parents(tmp_path):
    folders = [write_run(tmp_path / parent / "run", [1.0, 1.0]) for parent in ("a", "b")]
    assert [run.name for run in read_runs(folders)] == ["a/run", "b/run"]


def test_objects_of_a_config_are_named_by_their_class():
    config = {"type": "x:Y", "model": {"type": "a.b:Small", "width": 3, "inner": {"type": "c:D", "list": [1, 2]}}}
    assert flat_fields(config) == {
        "model": "Small",
        "model.width": 3,
        "model.inner": "D",
        "model.inner.list": [1, 2],
    }


def test_what_is_no_run_is_named_in_one_line(three, tmp_path):
    for arguments, message in (
        ([str(three[0])], "give at least two runs, got 1"),
        ([str(three[0]), __file__], "test_compare.py is a file; give the folders of runs, such as "),
        ([str(tmp_path)], f"got 1; runs inside {tmp_path}: "),
        (
            [str(three[0]), str(tmp_path / "none")],
            "none/config.json is missing; give the folder of a run that has started",
        ),
    ):
        with pytest.raises((ValueError, FileNotFoundError), match=re.escape(message)):
            main(arguments)


def test_the_command_prints_the_path_of_the_page(three, tmp_path, capsys):
    out = tmp_path / "page.html"
    assert main([*map(str, three), "--out", str(out)]) == 0
    assert capsys.readouterr().out == f"{out}\n"
    assert out.is_file()
