"""Numbers of docs/character_models.md and of its rows in the README are those of the ledger."""

import csv
import json
import re

import numpy as np
import pytest

SEEDS = ("additions", "additions-seed1", "additions-seed2")


@pytest.mark.parametrize("file", ["README.md", "docs/character_models.md"])
def test_the_share_of_right_sums_is_the_mean_of_the_seeds(root, entries, file):
    page = " ".join((root / file).read_text(encoding="utf-8").split())
    mean, low, high = map(
        float, re.search(r"([\d.]+)% of (?:500|the test's).*?\(([\d.]+) to ([\d.]+)\)", page).groups()
    )
    runs = [entries(name)["exact_match", "test"] for name in SEEDS]
    assert [run["seed"] for run in runs] == [0, 1, 2]
    assert [run["examples"] for run in runs] == [500] * 3
    values = [100 * run["value"] for run in runs]
    assert (mean, low, high) == pytest.approx((np.mean(values), min(values), max(values)), abs=0.051)


def test_the_minutes_of_the_readme_are_those_of_the_runs(root, entries):
    page = (root / "README.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"`additions` \| works \| .* after (\d+) to (\d+) minutes on a busy machine", page)
    minutes = [entries(name)["exact_match", "test"]["train_seconds"] / 60 for name in SEEDS]
    assert list(map(float, shown)) == pytest.approx([min(minutes), max(minutes)], abs=0.51)


def test_the_losses_of_both_versions_of_the_fast_recipe_are_in_the_ledger(root):
    held = json.loads((root / "docs" / "results" / "gpt_shakespeare_fast.json").read_text(encoding="utf-8"))
    losses = {entry["steps"]: entry["value"] for entry in held if entry["metric"] == "loss"}
    page = " ".join((root / "docs" / "character_models.md").read_text(encoding="utf-8").split())
    before = re.search(r"for ([\d,]+) steps, and had a loss of ([\d.]+)\.", page).groups()
    after = re.search(r"after ([\d,]+) steps the loss is ([\d.]+)\.", page).groups()
    for steps, value in (before, after):
        assert float(value) == pytest.approx(losses[int(steps.replace(",", ""))], abs=0.00051)


def test_the_parts_of_the_fast_recipe_are_what_its_runs_measured(root, entries):
    page = (root / "docs" / "character_models.md").read_text(encoding="utf-8")
    losses, unchanged = {}, set()
    for name in ("ablation", "logit_cap"):
        with (root / "docs" / "results" / f"gpt_shakespeare_fast_{name}.csv").open(encoding="utf-8") as file:
            losses |= {re.sub("=|_(?=[0-9])", " ", run["run"]): float(run["best_loss"]) for run in csv.DictReader(file)}
        unchanged.add(losses.pop("unchanged"))
    (unchanged,) = unchanged  # both sweeps have the same first run
    assert float(re.search(r"^\| nothing \| ([\d.]+) \| \|$", page, re.M)[1]) == pytest.approx(unchanged, abs=5.1e-4)
    rows = re.findall(r"^\| `([^`]+)` \| ([\d.]+) \| ([+-][\d.]+) \|$", page, re.M)
    assert {name for name, *_ in rows} == losses.keys()
    for name, loss, difference in rows:
        assert float(loss) == pytest.approx(losses[name], abs=5.1e-4)
        assert float(difference) == pytest.approx(losses[name] - unchanged, abs=5.1e-4)
    words = " ".join(page.split())
    for rate, entry in (("2e-3", "adamw"), ("4e-3", "adamw-4e-3")):
        name = f"gpt_shakespeare_fast-{entry}"
        loss = re.search(rf"([\d.]+) at (?:a learning rate of )?{rate} \(`{name}`\)", words)[1]
        assert float(loss) == pytest.approx(entries(name)["loss", "validation"]["value"], abs=5.1e-4)
    published = " ".join((root / "docs" / "published.md").read_text(encoding="utf-8").split())
    said = re.search(
        r"Muon brings ([\d.]+) nats, normalised queries and keys ([\d.]+), and a learning rate that falls to zero "
        r"([\d.]+)\.",
        published,
    )
    adamw = entries("gpt_shakespeare_fast-adamw")["loss", "validation"]["value"]
    brought = [loss - unchanged for loss in (adamw, losses["head_norm False"], losses["min_lr_ratio 0.1"])]
    assert [*map(float, said.groups())] == pytest.approx(brought, abs=5.1e-4)
    mean, deviation = re.search(
        r"Its mean over three seeds is ([\d.]+), with a standard deviation of (\d\.\d+)", words
    ).groups()
    names = [f"gpt_shakespeare_fast{seed}" for seed in ("", "-seed1", "-seed2")]
    values = [entries(name)["loss", "validation"]["value"] for name in names]
    assert [float(mean), float(deviation)] == pytest.approx([np.mean(values), np.std(values, ddof=1)], abs=5.1e-4)


def test_the_loss_of_digits_by_pixels_is_that_of_the_run(root, entries):
    page = (root / "README.md").read_text(encoding="utf-8")
    loss, fewest, most = re.search(
        r"`gpt_play_image` \| works \| mean of three seeds: ([\d.]+) nats per pixel of 359 held-out digits after "
        r"(\d+) to (\d+) minutes",
        page,
    ).groups()
    runs = [entries(f"gpt_play_image{seed}")["loss", "validation"] for seed in ("", "-seed1", "-seed2")]
    assert {entry["examples"] for entry in runs} == {359 * 64}
    assert float(loss) == pytest.approx(np.mean([entry["value"] for entry in runs]), abs=5.1e-4)
    minutes = [entry["train_seconds"] / 60 for entry in runs]
    assert [float(fewest), float(most)] == pytest.approx([min(minutes), max(minutes)], abs=0.51)
