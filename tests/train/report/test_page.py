import math
import re

from jaxnlp.pages.content import MarkedText
from train.report.logged_run import LoggedRun
from train.report.page import Figure, render_page
from train.report.sections import LoggedSection

CONFIG = {"type": "train.config:TrainConfig", "recipe": "gpt_tiny", "total_steps": 200}
ENVIRONMENT = {
    "devices": 2,
    "device": "cpu",
    "parameters": 10788929,
    "command": "jaxnlp train gpt_tiny --workdir runs/a",
    "metrics": {
        "loss": {"of": "tokens", "unit": "nats", "better": "lower"},
        "accuracy": {"of": "questions", "unit": "", "better": "higher"},
    },
    "progress": "loss",
}
ROWS = [
    {"step": 100, "split": "train", "loss": 2.5125, "tokens_per_second": 51000.0, "train_seconds": 12.5},
    {"step": 100, "split": "validation", "loss": 1.7375, "accuracy": 0.4375, "train_seconds": 15.5},
    {"step": 150, "split": "train", "loss": 2.0, "tokens_per_second": 53000.0, "train_seconds": 21.25},
    {"step": 200, "split": "train", "tokens_per_second": 52000.0, "loss": 1.0625, "train_seconds": 61.5},
    {"step": 200, "split": "validation", "loss": 1.875, "accuracy": 0.5625, "train_seconds": 75.4},
]
HOSTILE = "<script>alert('&\"')</script>"
FIGURES = [
    Figure(name, f"{name} <by> step", '<svg viewBox="0 0 1 1"><g id="a"/></svg>', narrow)
    for name, narrow in (
        ("loss", '<svg viewBox="0 0 2 2"></svg>'),
        ("scores", '<svg viewBox="0 0 3 3"></svg>'),
        ("rate", None),
    )
]


def page(config=CONFIG, environment=ENVIRONMENT, rows=ROWS, sections=(), figures=(), folder="mine"):
    return render_page(LoggedRun(folder, config, environment, rows), sections, figures)


def tiles(text):
    found = re.findall(r"<dt>(.*?)</dt><dd>(.*?)<small>(.*?)</small>", text)
    return {name: (value, remark) for name, value, remark in found}


def test_head_states_the_best_of_each_metric_size_time_and_median_speed():
    assert tiles(page()) == {
        "Best validation loss": ("1.7375", "nats per token, lower is better, step 100"),
        "Best validation accuracy": ("0.5625", "over questions, higher is better, step 200"),
        "Parameters": ("10.8 M", "10,788,929"),
        "Training time": ("1 min 15 s", "without evaluation and saving"),
        "Throughput": ("52 k", "tokens/s, median"),
    }


def test_the_share_of_the_peak_is_shown_where_it_is_known():
    known = ENVIRONMENT | {"flops_per_unit": 7.5e8, "peak_flops": 100e12}
    assert tiles(page(environment=known))["Throughput"] == (
        "52 k",
        "tokens/s, median; 39% of the peak in bfloat16",
    )
    for broken in ({"peak_flops": 0}, {"peak_flops": None}, {"flops_per_unit": "many"}):
        assert tiles(page(environment=known | broken))["Throughput"] == ("52 k", "tokens/s, median")


def declaring(**changes):
    """The environment, with some metrics declared otherwise."""
    return ENVIRONMENT | {"metrics": ENVIRONMENT["metrics"] | changes}


def test_metrics_that_are_not_declared_are_only_in_the_table():
    rows = [row | {"bleu": 30.0} for row in ROWS]
    text = page(rows=rows)
    assert not any("bleu" in name for name in tiles(text))
    assert '<th scope="row">bleu</th>' in text


def test_head_shows_the_first_metrics_and_the_one_that_selects_the_best_checkpoint():
    names = [f"part{n}/f1" for n in range(9)]
    rows = [{"step": 1, "split": "validation", **dict.fromkeys(names, 0.5)}]
    found = tiles(page(environment={"metrics": {name: {} for name in names}, "best_metric": "part7/f1"}, rows=rows))
    assert list(found) == [f"Best validation part{n} f1" for n in (7, 0, 1, 2)]


def test_throughput_is_that_of_the_metric_that_progress_is_counted_by():
    rows = [{"step": 1, "split": "train", "questions_per_second": 7.0}]
    environment = ENVIRONMENT | {"progress": "accuracy"}
    assert tiles(page(environment=environment, rows=rows))["Throughput"] == ("7", "questions/s, median")
    assert "Throughput" not in tiles(page(rows=rows))


def test_charts_have_a_wide_and_a_narrow_form_and_ids_of_their_own():
    text = page(figures=FIGURES)
    assert re.findall(r'viewBox="0 0 (\d)', text) == ["1", "2", "1", "3", "1"]
    assert re.findall(r'<g id="(.*?)"', text) == ["chart-0-a", "chart-1-a", "chart-2-a"]
    assert 'aria-label="loss &lt;by&gt; step"' in text
    pair = text[text.index('<div class="pair">') :]
    assert 'aria-label="rate' in pair
    assert 'aria-label="scores' not in pair


def test_values_that_are_not_finite_are_named_by_metric():
    rows = [*ROWS, {"step": 201, "split": "train", "loss": float("nan"), "objective": float("inf"), "other": None}]
    text = page(rows=rows)
    assert "1 of 6 logged values of loss are not finite; the first: train, step 201." in text
    assert "1 of 1 logged values of objective are not finite" in text
    assert "values of other" not in text


def test_a_run_that_declares_no_metrics_says_so():
    assert "environment.json declares no metrics" in page(environment={})
    assert "declares no metrics" not in page()


def test_sections_of_a_task_come_before_the_last_values():
    text = page(sections=[LoggedSection(5, "Samples", "all", MarkedText(((("The", True),),)))])
    assert text.index("<h2>Samples</h2>") < text.index("<h2>Last measured</h2>")
    assert "Samples" not in page()


def test_head_names_recipe_and_devices():
    assert "<h1>gpt_tiny</h1>" in page()
    assert '<p class="eyebrow">Run <code>mine</code> on 2 x cpu</p>' in page()
    assert "<title>mine (gpt_tiny): run report</title>" in page()
    assert "<title>gpt_tiny: run report</title>" in page(folder="gpt_tiny")


def test_without_validation_the_head_says_that_its_losses_are_of_training():
    found = tiles(page(rows=[row for row in ROWS if row["split"] == "train"]))
    assert found["Best train loss"] == ("1.0625", "nats per token, lower is better, step 200")
    assert not any("validation" in name for name in found)


def test_a_unit_that_the_name_of_its_metric_says_is_not_repeated():
    declared = {"steps_per_word": {"of": "words", "unit": "steps", "better": "lower"}}
    rows = [{"step": 1, "split": "train", "steps_per_word": 1.5}]
    table = page(environment=ENVIRONMENT | {"metrics": declared}, rows=rows).partition("Last measured")[2]
    assert '<th scope="row">steps per word</th><td>1.5000</td>' in table
    found = tiles(page(environment=ENVIRONMENT | {"metrics": declared}, rows=rows))
    assert found["Best train steps per word"] == ("1.5000", "lower is better, step 1")


def test_metrics_have_their_declared_titles_in_tiles_and_the_table():
    text = page(environment=declaring(accuracy={"of": "questions", "title": "ACC"}))
    assert "Best validation ACC" in tiles(text)
    assert '<th scope="row">ACC</th>' in text


def test_metrics_that_only_training_measures_are_the_last_tiles():
    rows = [*ROWS, {"step": 1, "split": "train", "padding": 1.5}]
    metrics = {"padding": {"better": "lower"}} | ENVIRONMENT["metrics"]
    found = list(tiles(page(environment=ENVIRONMENT | {"metrics": metrics}, rows=rows)))
    assert found[:3] == ["Best validation loss", "Best validation accuracy", "Best train padding"]


def test_last_values_are_those_of_the_last_row_of_each_split_declared_metrics_first():
    table = re.search(r'<table class="measured">.*?</table>', page(), re.DOTALL)[0]
    lines = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", line) for line in table.split("</tr>")[1:-1]]
    assert lines == [
        ["loss<small>nats per token</small>", "1.0625", "1.8750"],
        ["accuracy", "", "0.5625"],
        ["tokens per second", "52,000", ""],
        ["train seconds", "61.5000", "75.4000"],
    ]


def test_finished_run_is_told_from_an_unfinished_one():
    assert '<span class="state">Finished</span> at step 200 of 200' in page()
    assert '<span class="state">Unfinished</span> at step 150 of 200' in page(rows=ROWS[:3])
    assert "width: 75.0%" in page(rows=ROWS[:3])


def test_a_run_that_stopped_early_is_told_from_both_and_why():
    rows = [*ROWS[:3], *({"step": 150, "split": "validation", "loss": loss} for loss in (1.0, 2.0, 3.0))]
    environment = ENVIRONMENT | {"best_metric": "loss"}
    stopped = page(rows=rows, config=CONFIG | {"stop_after": 2}, environment=environment)
    reason = "the validation loss has not improved in 2 evaluations"
    assert f'<span class="state">Stopped early</span> at step 150 of 200: {reason}' in stopped
    assert "the same command continues it" not in stopped
    assert "Unfinished" in page(rows=rows, config=CONFIG | {"stop_after": 3}, environment=environment)


def test_an_average_is_told_from_a_run():
    shown = page(rows=ROWS[:3], environment={"averaged": ["a, step 4", "b, step 4"], "command": "jaxnlp train"})
    assert '<span class="state">Average</span> of 2 checkpoints' in shown
    assert "continues it" not in shown


def test_unfinished_run_shows_the_recorded_command_that_continues_it():
    continues = "the same command continues it"
    assert continues not in page()
    assert f"<code>{ENVIRONMENT['command']}</code>; {continues}" in page(rows=ROWS[:3])
    assert continues not in page(rows=ROWS[:3], environment={})


def test_skipped_updates_are_named_only_where_there_were_some():
    row = {"step": 200, "split": "train", "loss": 1.0}
    assert "updates were skipped" not in page(rows=[row | {"skipped_updates": 0}])
    assert "3 updates were skipped" in page(rows=[row | {"skipped_updates": 3}])


def test_all_text_is_escaped():
    metrics = {HOSTILE: {"of": HOSTILE, "unit": HOSTILE}, "loss": {"of": HOSTILE, "unit": "nats", "better": "lower"}}
    text = page(
        {"recipe": HOSTILE, HOSTILE: HOSTILE, "data": {"type": f"a:{HOSTILE}", "list": [HOSTILE]}, "total_steps": 9},
        {"device": HOSTILE, HOSTILE: {HOSTILE: HOSTILE}, "command": ["python", HOSTILE], "metrics": metrics},
        [
            {"step": 1, "split": HOSTILE, "loss": 1.0, HOSTILE: 2.0, f"{HOSTILE}_per_second": 2.0},
            {"step": 2, "split": "train", "loss": "<b", HOSTILE: math.nan},
        ],
        [LoggedSection(1, HOSTILE, "latest", MarkedText((((HOSTILE, True),),)))],
        [Figure(HOSTILE, HOSTILE, *[FIGURES[0].wide] * 2)],
    )
    assert "<script" not in text
    assert "<b<" not in text
    assert not re.search(r"<[^>]*alert\((?!&)", text)
    assert text.count("&lt;script&gt;") > 20


def test_config_is_shown_by_section_with_every_value_and_no_module_path():
    config = CONFIG | {
        "ema_decay": None,
        "model": {
            "type": "jaxnlp.models.gpt:GPTConfig",
            "width": 64,
            "attention": {"type": "jaxnlp.nn:Causal", "heads": 4},
        },
        "tasks": [{"type": "data:Sts", "weight": 0.5}, {"type": "data:Sst", "betas": [0.9, 0.95]}],
    }
    text = page(config).replace("<wbr>", "")
    sections = {
        title: (kind, dict(re.findall(r"<th[^>]*>(.*?)</th><td>(.*?)</td>", body)))
        for title, kind, body in re.findall(r"<h3>(\w+) <small>(\w*)</small></h3><table>(.*?)</table>", text)
    }
    assert sections["model"] == ("GPTConfig", {"width": "64", "attention": "Causal", "attention.heads": "4"})
    assert sections["run"][0] == "TrainConfig"
    assert sections["run"][1] == {
        "recipe": "gpt_tiny",
        "total_steps": "200",
        "ema_decay": "none",
        "tasks.0": "Sts",
        "tasks.0.weight": "0.5",
        "tasks.1": "Sst",
        "tasks.1.betas": "[0.9, 0.95]",
    }
    assert "jaxnlp.models.gpt" not in text
