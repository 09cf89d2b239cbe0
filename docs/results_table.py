"""The table of results, made from the ledger docs/results/*.json when the site is built."""

import json
import re
import statistics
from collections import defaultdict
from pathlib import Path
from typing import Any

Entry = dict[str, Any]


def search(entry: Entry) -> tuple[int | None, float | None]:
    """The beams and the length penalty of an entry's measurement; a search with one beam has no length penalty."""
    beams = entry.get("num_beams")
    return (None, None) if not beams or beams == 1 else (beams, entry.get("length_penalty"))


def newest(entries: list[Entry]) -> list[Entry]:
    """The entries of the newest run: later entries replace earlier ones of the same metric, split and search."""
    last = [entry for entry in entries if entry["commit"] == entries[-1]["commit"]]
    return list({(entry["metric"], entry["split"], *search(entry)): entry for entry in last}.values())


def read(folder: Path) -> dict[str, list[Entry]]:
    """The newest entries of each run, those of its seeds together. Files that are not of the ledger are left out."""
    found: dict[str, list[Entry]] = defaultdict(list)
    for path in sorted(folder.glob("*.json"), key=lambda path: path.stem):
        entries = json.loads(path.read_text(encoding="utf-8"))
        if "recipe" in entries[0]:  # rows of benchmarks have other fields
            found[re.sub(r"-seed\d+$", "", path.stem)] += newest(entries)
    return found


def shown(values: list[float]) -> str:
    """A number, or the mean of several and their standard deviation."""
    if len(values) == 1:
        return f"{values[0]:.4g}"
    return f"{statistics.mean(values):.4g} ± {statistics.stdev(values):.2g}"


def rows(name: str, entries: list[Entry]) -> list[list[str]]:
    """A row for each split and search: the metric that selected the checkpoint, and the others."""
    groups: dict[tuple[Any, ...], dict[str, list[Entry]]] = defaultdict(lambda: defaultdict(list))
    for entry in entries:
        part, _, split = entry["split"].rpartition("/")
        if part and entry["metric"] == "f1":
            continue  # of a single class
        metric = f"{part}/{entry['metric']}" if part else entry["metric"]
        groups[split, *search(entry)][metric].append(entry)
    made = []
    for (split, beams, penalty), metrics in groups.items():
        config = entries[0]["config"]
        selected = config.get("best_metric") or config.get("best_by") or "loss"
        first = selected if selected in metrics else min(metrics)
        others = [f"{metric} {shown([e['value'] for e in metrics[metric]])}" for metric in sorted({*metrics} - {first})]
        runs = metrics[first]
        by = f", {beams} beams" + (f", penalty {penalty}" if penalty else "") if beams else ""
        made.append(
            [
                f"`{name}`",
                split + by,
                f"{first} **{shown([entry['value'] for entry in runs])}**",
                ", ".join(others),
                str(len(runs)),
                f"{statistics.mean(entry['steps'] for entry in runs):,.0f}",
                f"{statistics.mean(entry['train_seconds'] for entry in runs):,.0f}\u00a0s",
            ]
        )
    return made


def page(folder: Path) -> str:
    """The page in Markdown. Raises: KeyError for a ledger entry that lacks a field."""
    head = ["run", "measured on", "result", "further metrics", "seeds", "steps", "training"]
    lines = [head, ["---"] * 4 + ["---:"] * 3]
    for name, entries in read(folder).items():
        lines += rows(name, entries)
    return INTRODUCTION + "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


INTRODUCTION = """# Results

This table is made from the ledger in `docs/results` when the site is built. `jaxnlp evaluate RUN --record`
writes the ledger, and nothing in it is typed by hand. A row of several seeds has their mean and standard deviation; the
steps and the seconds of training are means, too.

Losses are in nats, BLEU and chrF are out of 100, and shares are fractions of 1. BLEU is 0 if no translation has four
words, as in `number_words`. The first metric is the one that
selected the checkpoint, if it was measured there. F1 of single classes is left out. Machines differ, so the seconds are
a rough guide: each ledger entry names its device, its versions and its command. [The ledger's own
page](results/README.md) lists options that were renamed.

"""
