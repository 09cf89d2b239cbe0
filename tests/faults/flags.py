"""Every option of every recipe with values that mean nothing: each is accepted, or refused in one line.

    python -m tests.faults.flags [--every-recipe] [--match model.width] [--json FILE]

A value goes as far as a run goes before its first step: the config, the data set on tiny files, the shapes of the
state, the estimate of memory. Nothing is trained, and the parameters are never allocated. A find is an error that the
command line does not print as a line, a case that takes more CPU time than `SECONDS`, or more than `MEMORY`.
"""

import argparse
import contextlib
import faulthandler
import functools
import io
import json
import logging
import os
import re
import resource
import signal
import sys
import tempfile
import time
import traceback
import typing
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from jaxnlp.cli.messages import is_shown_as_line, reason
from jaxnlp.cli.options import Option, options_of
from jaxnlp.convert import folders
from train.cli.command_line import RunOptions, _typed
from train.config import TrainConfig, update
from train.recipes import load_recipe, recipe_names
from train.run.continuation import check_folder
from train.run.init_from import begin
from train.run.memory import require_memory
from train.run.setup import set_up

VALUES = ("0", "-1", "1", "1000000000", "1000000000000000000", "nan", "inf", "1e30", "", "x" * 10_000)
SECONDS = 10
"""CPU time of a case. Reading tiny data and tracing a model take up to three seconds."""
MEMORY = 6 * 2**30
"""Bytes of address space that all cases together may take beyond those of the imports."""
LONGEST = 2_000
"""Characters of a message."""


class Hang(BaseException):
    """A case has taken more CPU time than `SECONDS`."""


class Outcome(NamedTuple):
    """Attributes: kind: accepted, refused or find; text: the message, or the end of the traceback."""

    recipe: str
    option: str
    value: str
    kind: str
    text: str
    seconds: float


def write_files(folder: Path) -> None:
    """Tiny data of every format."""
    words = ["the", "tide", "eats", "stone", "and", "sea", "sings", "of", "old", "under", "a", "red", "moon"]
    rng = np.random.default_rng(0)
    lines = [" ".join(rng.choice(words, 8)) for _ in range(200)]
    (folder / "text.txt").write_text("\n".join(lines) + "\n")
    rows = [f"{line},{index % 2}\n" for index, line in enumerate(lines)]
    (folder / "table.csv").write_text("".join(["text,label\n", *rows]))
    (folder / "pairs.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in zip(lines, reversed(lines), strict=True)))
    tags = ["O", "B-X"]
    (folder / "tags.txt").write_text(
        "\n\n".join("\n".join(f"{word} {tags[len(word) % 2]}" for word in line.split()) for line in lines) + "\n"
    )
    tree = "\n".join(f"{n}\tword{n}\t_\tNOUN\tNN\t_\t{n - 1}\t{'root' if n == 1 else 'dep'}\t_\t_" for n in range(1, 6))
    (folder / "trees.conllu").write_text("\n\n".join([tree] * 40) + "\n\n")
    questions = [
        {"id": f"{n}", "question": "who sings?", "answers": [{"text": "sea", "answer_start": 4}]} for n in range(3)
    ]
    article = {"title": "sea", "paragraphs": [{"context": "the sea sings", "qas": questions}]}
    (folder / "squad.json").write_text(json.dumps({"version": "1.1", "data": [article] * 20}))
    for label in ("cat", "dog"):
        (folder / "images" / label).mkdir(parents=True)
        for number in range(12):
            Image.fromarray(rng.integers(0, 255, (8, 8, 3), np.uint8)).save(folder / "images" / label / f"{number}.png")


def tiny(config: TrainConfig, folder: Path) -> TrainConfig:
    """The recipe on tiny data, without pretrained weights."""
    text, pairs = str(folder / "text.txt"), str(folder / "pairs.tsv")
    pairless = {"parts": (), "tables": (), "swap_pairs": False, "pair": None, "fold": 0}
    fields: dict[str, Any] = {
        "CharacterText": {"source": "text_file", "path": text},
        "BytePairText": {"source": "text_file", "path": text},
        "WordText": {"source": "text_file", "path": text, "minimum_count": 1},
        "MaskedText": {"source": "text_file", "path": text},
        "CorruptedText": {"files": (text,), "data_set": None},
        "TextTable": {"source": "table", "path": str(folder / "table.csv"), **pairless},
        "ParallelText": {"data_set": None, "path": None, "train": (pairs,), "validation": (), "test": ()},
        "TaggedSentences": {"source": "files", "train": str(folder / "tags.txt")},
        "Treebank": {"source": "files", "train": str(folder / "trees.conllu")},
        "QuestionContexts": {"source": "files", "train": str(folder / "squad.json")},
        "Images": {"source": "files", "path": str(folder / "images")},
    }.get(type(config.data).__name__, {})
    config = update(config, init_from=None, init_ignore=(), init_new_tokens=())
    with contextlib.suppress(ValueError):  # a recipe of several parts, or of a data set with a format of its own
        return update(config, **{f"data.{name}": value for name, value in fields.items()})
    return config


def single_kinds(kind: Any) -> set[Any]:
    """The types of single values: str and NoneType of `tuple[str, ...] | None`."""
    return {one for part in typing.get_args(kind) for one in single_kinds(part)} or {kind}


def options_to_walk(recipes: list[str], *, every_recipe: bool = False) -> Iterator[tuple[str, Option]]:
    """Every option that takes a value, with a recipe that has it: recipes share most of them."""
    seen: set[Any] = set()
    for recipe in recipes:
        config = load_recipe(recipe)
        for option in (*options_of(RunOptions()), *options_of(config)):
            key = (option.name, str(option.kind), option.help)
            if single_kinds(option.kind) - {bool, type(None)} and (every_recipe or key not in seen):
                seen.add(key)
                yield recipe, option


def prepare(config: TrainConfig, folder: Path, words: list[str]) -> None:
    """What `jaxnlp train` does with a command before its first step, without claiming the folder."""
    config, options = _typed(config, RunOptions(), words, program="jaxnlp train RECIPE")
    workdir = options.workdir or folder / "run"
    check_folder(workdir, config)
    setup = set_up(begin(config, workdir))
    require_memory(setup)


def attempt(recipe: str, config: TrainConfig, folder: Path, option: str, value: str, seconds: int = SECONDS) -> Outcome:
    """Takes a value as far as `prepare` goes."""
    started, printed = time.perf_counter(), io.StringIO()
    kind, text = "accepted", ""
    signal.setitimer(signal.ITIMER_PROF, seconds)
    (folder / "case").write_text(f"{recipe} {option} {value}")
    faulthandler.dump_traceback_later(60 * seconds, exit=True)  # code in C that never looks at the signal
    try:
        with contextlib.redirect_stderr(printed), contextlib.redirect_stdout(printed):
            prepare(config, folder, [f"--{option}={value}"])
    except SystemExit:
        kind, text = "refused", printed.getvalue()
    except Exception as error:
        kind, text = ("refused" if is_shown_as_line(error) else "find"), reason(error)
        if kind == "find":
            text = _end_of(traceback.format_exc())
        elif len(text) > LONGEST:
            kind, text = "find", f"a message of {len(text):,} characters: {text[:300]}"
    except Hang:
        kind, text = "find", f"more than {seconds} s: {_end_of(traceback.format_exc())}"
    except BaseException:
        kind, text = "find", _end_of(traceback.format_exc())
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        faulthandler.cancel_dump_traceback_later()
    shown = value if len(value) < 40 else f"{len(value):,} characters"
    return Outcome(recipe, option, shown, kind, text, round(time.perf_counter() - started, 2))


def _end_of(text: str) -> str:
    return "\n".join(text.strip().splitlines()[-7:])[-1_500:]


def _stop(*_: Any) -> None:
    raise Hang


def no_network(name: str, **_: Any) -> Path:
    """Stands in for a download: its time limits are those of the Hub's library."""
    raise folders.PretrainedError(f"there is no folder {name}")


def cached_loads() -> None:
    """Data configs that are equal give the same corpus: most options do not change it."""
    from jaxnlp.corpus import DataConfig

    def cached(load: Any) -> Any:
        held = functools.lru_cache(maxsize=64)(load)

        def loaded(self: Any, seed: int, processor: Any = None) -> Any:
            return held(self, seed) if processor is None else load(self, seed, processor)

        return loaded

    kinds = [DataConfig]
    for kind in kinds:  # which grows
        kinds += kind.__subclasses__()
        if "load" in vars(kind) and kind is not DataConfig:
            kind.load = cached(kind.load)  # type: ignore[method-assign]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--every-recipe", action="store_true", help="also options that an earlier recipe has")
    parser.add_argument("--recipe", nargs="*", default=recipe_names())
    parser.add_argument("--match", default="", help="only options whose names fit this pattern")
    parser.add_argument("--values", nargs="*", default=VALUES)
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no further option after this time")
    parser.add_argument("--json", type=Path, help="write all outcomes here")
    given = parser.parse_args(arguments)
    signal.signal(signal.SIGPROF, _stop)
    logging.disable(logging.CRITICAL)
    os.environ["COLUMNS"] = "120"
    folders._downloaded = no_network  # type: ignore[assignment]
    cached_loads()
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, resource.RLIM_INFINITY))
    outcomes: list[Outcome] = []
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_files(folder)
        os.chdir(folder)
        configs: dict[str, TrainConfig] = {}
        for recipe, option in options_to_walk(given.recipe, every_recipe=given.every_recipe):
            if not re.match(given.match, option.name) or time.perf_counter() - started > given.seconds:
                continue
            if recipe not in configs:
                print(f"{time.perf_counter() - started:.0f} s: {recipe}", flush=True)
                configs[recipe] = tiny(load_recipe(recipe), folder)
            for value in given.values:
                outcomes.append(attempt(recipe, configs[recipe], folder, option.name, value))
                if outcomes[-1].kind == "find":
                    print(*outcomes[-1][:4], outcomes[-1].seconds, "\n   ", outcomes[-1].text.replace("\n", "\n    "))
                    sys.stdout.flush()
            if given.json:
                given.json.write_text(json.dumps([one._asdict() for one in outcomes], indent=1))
    print(dict(Counter(one.kind for one in outcomes)), f"{time.perf_counter() - started:.0f} s")
    print("slowest:", *sorted(((one.seconds, *one[:3]) for one in outcomes), reverse=True)[:5], sep="\n  ")
    return int(any(one.kind == "find" for one in outcomes))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
