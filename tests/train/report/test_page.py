import html
import re

import pytest

from train.page import render_page
from train.plots import draw_plots

CONFIG = {"type": "train.config:TrainConfig", "recipe": "gpt_tiny", "total_steps": 200}
ENVIRONMENT = {
    "devices": 2,
    "device": "cpu",
    "parameters": 10788929,
    "command": "python -m train gpt_tiny --workdir runs/a",
}
ROWS = [
    {"step": 100, "split": "train", "loss": 2.5125, "tokens_per_second": 51000.0, "train_seconds": 12.5},
    {"step": 100, "split": "validation", "loss": 1.7375, "accuracy": 0.4375, "train_seconds": 15.5},
    {"step": 150, "split": "train", "loss": 2.0, "tokens_per_second": 53000.0, "train_seconds": 21.25},
    {"step": 200, "split": "train", "tokens_per_second": 52000.0, "loss": 1.0625, "train_seconds": 61.5},
    {"step": 200, "split": "validation", "loss": 1.875, "accuracy": 0.5625, "train_seconds": 75.4},
]
DRAWINGS = draw_plots(ROWS)
HOSTILE = "<script>alert('&\"')</script>"


def page(config=CONFIG, environment=ENVIRONMENT, rows=ROWS, samples=(), answers=None, words=None):
    drawings = DRAWINGS if words is None else draw_plots(ROWS, words)
    return render_page(config, environment, rows, samples, answers, words, drawings)


def tiles(text):
    found = re.findall(r"<dt>(.*?)</dt><dd>(.*?)<small>(.*?)</small>", text)
    return {name: (value, remark) for name, value, remark in found}


def test_head_states_best_and_final_loss_size_time_and_median_speed():
    assert tiles(page()) == {
        "Best validation loss": ("1.7375", "nats/token, step 100"),
        "Final validation loss": ("1.8750", "nats/token, step 200"),
        "Parameters": ("10.8 M", "10,788,929"),
        "Training time": ("1 min 15 s", "75.4 seconds"),
        "Throughput": ("52 k", "tokens/s, median"),
    }


def test_head_names_recipe_and_devices():
    assert "<h1>gpt_tiny</h1>" in page()
    assert '<p class="eyebrow">2 x cpu</p>' in page()


def test_without_validation_the_head_says_that_its_losses_are_of_training():
    found = tiles(page(rows=[row for row in ROWS if row["split"] == "train"]))
    assert found["Best train loss"] == ("1.0625", "nats/token, step 200")
    assert not any("validation" in name for name in found)


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(0.04, "0.0 s"), (59.9, "59.9 s"), (119.7, "2 min 00 s"), (3599.2, "59 min 59 s"), (3725.0, "1 h 02 min")],
)
def test_training_time_is_read_in_its_largest_units(seconds, expected):
    assert tiles(page(rows=[{"step": 1, "split": "train", "train_seconds": seconds}]))["Training time"][0] == expected


@pytest.mark.parametrize(("parameters", "expected"), [(7, "7"), (999, "999"), (999999, "1 M"), (1234567890, "1.23 B")])
def test_parameters_are_counted_in_the_largest_unit(parameters, expected):
    assert tiles(page(environment={"parameters": parameters}))["Parameters"][0] == expected


def test_last_values_are_those_of_the_last_row_of_each_split_loss_first():
    table = re.search(r'<table class="measured">.*?</table>', page(), re.DOTALL)[0]
    lines = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", line) for line in table.split("</tr>")[1:-1]]
    assert lines == [
        ["loss", "1.0625", "1.8750"],
        ["tokens per second", "52,000", ""],
        ["train seconds", "61.5000", "75.4000"],
        ["accuracy", "", "0.5625"],
    ]


def test_finished_run_is_told_from_an_unfinished_one():
    assert '<span class="state">Finished</span> at step 200 of 200' in page()
    assert '<span class="state">Unfinished</span> at step 150 of 200' in page(rows=ROWS[:3])
    assert "width: 75.0%" in page(rows=ROWS[:3])


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
    text = render_page(
        {"recipe": HOSTILE, HOSTILE: HOSTILE, "data": {"type": f"a:{HOSTILE}", "list": [HOSTILE]}, "total_steps": 9},
        {"device": HOSTILE, HOSTILE: {HOSTILE: HOSTILE}, "command": ["python", HOSTILE]},
        rows := [{"step": 1, "split": HOSTILE, "loss": 1.0, HOSTILE: 2.0}, {"step": 2, "split": "train", "loss": "<b"}],
        [{"step": 1, "prompt": HOSTILE, "text": HOSTILE + HOSTILE}, {"step": 2, "prompt": "", "text": HOSTILE}],
        None,
        words := {
            "step": 2,
            "positions": [1.0],
            "scored": 1,
            "neighbours": [{"word": HOSTILE, "near": [[HOSTILE, 1]]}],
        },
        draw_plots(rows, words),
    )
    assert "<script" not in text
    assert "<b<" not in text
    assert text.count("&lt;script&gt;") > 12


def test_samples_are_latest_first_and_only_the_latest_is_open():
    samples = [{"step": step, "prompt": "a", "text": f"a {step}"} for step in (50, 100, 200, 200)]
    folds = re.findall(r"<details( open)?><summary>Step (\d+)</summary>(.*?)</details>", page(samples=samples))
    assert [(bool(is_open), step) for is_open, step, _ in folds] == [(True, "200"), (False, "100"), (False, "50")]
    assert [body.count("<pre>") for _, _, body in folds] == [2, 1, 1]


def test_samples_keep_their_white_space_and_set_the_prompt_apart():
    text = "The  cat\n\tsat &\n  smiled"
    assert f"<pre><b>The  </b>{html.escape(text[5:])}</pre>" in page(
        samples=[{"step": 1, "prompt": "The  ", "text": text}]
    )
    # An output that does not continue its prompt, as a translation, stands below it.
    assert "<pre><b>The cat</b>\nDie Katze</pre>" in page(
        samples=[{"step": 1, "prompt": "The cat", "text": "Die Katze"}]
    )


def test_samples_of_very_many_steps_are_thinned_and_the_page_says_so():
    samples = [{"step": step, "prompt": "", "text": f"sample {step}."} for step in range(1, 101)]
    text = page(samples=samples)
    assert "sample 100." in text
    assert "34 of 100 steps" in text
    assert text.count("<details") == 34


def test_page_without_samples_has_no_section_for_them():
    assert "Samples" not in page()


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


ANSWERS = {
    "step": 150,
    "answers": [
        {"question": "Where was Ada born?", "answer": "Rome", "given": "Rome", "seen": 7},
        {"question": f"Where was {HOSTILE} born?", "answer": "Oslo", "given": HOSTILE, "seen": 7},
        {"question": "Where was Bob born?", "answer": "Bonn", "given": "Rome", "seen": 0},
    ],
    "attention": [{"text": "Ada?", "given": "Ro", "weights": [[0.1, 0.4, 0.0, 0.2], [0.0, 0.0, 0.0, 0.0]]}],
}


def test_the_best_share_of_right_answers_stands_at_the_head():
    rows = [row | {"exact_match": share} for row, share in zip(ROWS, (0.1, 0.4, 0.2, 0.3, 0.35), strict=True)]
    assert tiles(page(rows=rows))["Best validation answers"] == ("40.0%", "right, step 100")
    assert "answers" not in " ".join(tiles(page()))


def test_answers_are_counted_by_how_often_their_place_occurs_in_training():
    text = page(answers=ANSWERS)
    assert "Step 150: 1 of 3 right." in text
    rows = re.findall(r'<tr><th scope="row">([^<]*)</th><td>(\d+)</td><td>([^<]*)</td>', text)
    assert rows == [("never", "1", "0.0%"), ("5 to 19", "2", "50.0%")]


def test_each_character_of_an_answer_shades_the_question_by_its_own_largest_weight():
    text = page(answers=ANSWERS)
    table = text[text.index("What each character of an answer looks at") :]
    lines = re.findall(r"<tr><th>(.)</th><td>(.*?)</td></tr>", table)
    assert [character for character, _ in lines[:2]] == ["R", "o"]
    shades = [re.findall(r"--share: (\d+)%\">(.)<", line) for _, line in lines[:2]]
    assert shades[0] == [("25", "A"), ("100", "d"), ("0", "a"), ("50", "?")]
    assert shades[1] == [("0", character) for character in "Ada?"]


def test_answers_are_marked_right_or_wrong_and_cannot_break_the_page():
    text = page(answers=ANSWERS)
    assert re.findall(r'<tr class="(right|wrong)">', text) == ["right", "wrong", "wrong"]
    assert HOSTILE not in text
    assert "<h2>Answers</h2>" not in page()


def test_an_answer_whose_attention_is_shown_has_the_expected_one_beside_it_where_they_differ():
    shown = ANSWERS["attention"][0]
    same, other = (
        ANSWERS | {"attention": [shown | {"answer": "Ro"}]},
        ANSWERS | {"attention": [shown | {"answer": "Oslo"}]},
    )
    assert "<caption>" not in page(answers=same)
    assert page(answers=other).count("<caption>expected Oslo</caption>") == 1


WORDS = {
    "step": 150,
    "positions": [6.5, 5.25, 5.0],
    "scored": 1234,
    "neighbours": [
        {"word": "tide", "near": [["sea", 0.912], ["a < b", 0.5]]},
        {"word": "of", "near": [["from", 0.25]]},
    ],
}


def test_words_are_shown_with_their_neighbours_and_the_curve_by_position():
    text = page(words=WORDS)
    section = text[text.index("<h2>Words</h2>") :]
    assert "Step 150." in section
    assert "means over 1,234 words" in section
    assert 'aria-label="Perplexity by position in the window"' in section
    rows = re.findall(r'<tr><th scope="row">(\w+)</th><td>(.*?)</td></tr>', section)[:2]
    assert [word for word, _ in rows] == ["tide", "of"]
    near = [re.findall(r"<span>(.*?) <small>(.*?)</small></span>", cell) for _, cell in rows]
    assert near == [[("sea", "0.91"), ("a &lt; b", "0.50")], [("from", "0.25")]]
    assert "<h2>Words</h2>" not in page()


def test_models_of_words_have_their_best_perplexity_at_the_head():
    assert tiles(page(words=WORDS))["Best validation perplexity"] == ("5.6831", "per word, step 100")
    lost = [row | {"loss": 1e20} for row in ROWS]
    assert "Best validation perplexity" in tiles(page(rows=lost, words=WORDS))
    nothing = [row | {"loss": None} for row in ROWS]
    assert "Best validation perplexity" not in tiles(page(rows=nothing, words=WORDS))
    assert not any("perplexity" in name for name in tiles(page()))
