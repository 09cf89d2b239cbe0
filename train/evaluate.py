"""`python -m train.evaluate RUN`: scores a run on a split or a file, and records the number in the ledger."""

import time

from train.launcher import start_time, use_huge_pages

if __name__ == "__main__":
    use_huge_pages(start_time(time.time()))

import dataclasses
import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from data import DataError
from jaxnlp.caches import use_compilation_cache
from jaxnlp.decoding.answer import QuestionError
from jaxnlp.decoding.sampling import Sampling
from jaxnlp.models.bert import BertModelConfig
from jaxnlp.runs import DamagedCheckpointError, RunError, checkpoint_steps, load_run
from jaxnlp.serialization import ConfigError, to_json
from train import folder, tasks
from train.config import TrainConfig, update
from train.language import NeuralCache
from train.objectives import COUNTED
from train.report import read_metrics
from train.tasks import Scores

MOST_METRICS_LINES = 2000
"""Lines of a run's metrics that the ledger keeps."""


@dataclasses.dataclass(frozen=True)
class Evaluate:
    """Scores a run: with its own objective, or as the task says."""

    run: tyro.conf.Positional[Path]
    """The run's folder."""
    split: str = "validation"
    """The split of its data set to score."""
    file: Path | None = None
    """Score this UTF-8 file, in the format of the run's data, instead of a split."""
    task: Literal["objective", "next_word", "perplexity", "complete"] = "objective"
    """The run's own objective. For recurrent language models also: next_word, the negative log-likelihood of the word
    behind each window of a fixture (--file, or the homework's); perplexity, per token over a whole text, with the state
    carried; complete, continuations of prompts (--file, or the homework's)."""
    predictions: Path | None = None
    """Write the answers to the split's questions, or the continuations, to this file, one a line. For text tasks: to
    files in this folder, one a task, as CS224N's project has them."""
    neural_cache: Annotated[NeuralCache, tyro.conf.arg(name="")] = dataclasses.field(default_factory=NeuralCache)
    judge: Path | None = None
    """Task complete: the run that tells how likely it finds the continuations, with the same vocabulary."""
    max_new_tokens: int = 20
    """Task complete: tokens of a continuation."""
    sampling: Annotated[Sampling, tyro.conf.arg(name="")] = dataclasses.field(
        default_factory=lambda: Sampling(temperature=0.0)
    )
    seed: int = 0
    """Task complete: the same seed draws the same continuations."""
    num_beams: int = 1
    """Task complete: more than 1 = the likeliest continuations that so many beams find, in place of drawing."""
    checkpoint: int | Literal["best", "latest"] = "best"
    """The best on the validation split, the newest, or a step."""
    record: Path | None = None
    """Append the numbers to this ledger file, docs/results/RECIPE.json, and lay the run's metrics beside it."""

    def __post_init__(self):
        if self.file is not None and self.split != "validation":
            raise ValueError(f"a file is scored in a split's place: give --split {self.split} or --file, not both")
        if self.file is not None and self.record is not None:
            raise ValueError("the ledger holds numbers on splits: give --record without --file")
        if self.predictions is not None and self.task in ("next_word", "perplexity"):
            raise ValueError(f"--task {self.task} has no answers to write: leave out --predictions")
        if self.split != "validation" and self.task in ("next_word", "complete"):
            raise ValueError(f"--task {self.task} is of a fixture, not of a split: leave out --split")
        if self.neural_cache != NeuralCache() and (self.task != "perplexity" or not self.neural_cache.cache_window):
            raise ValueError("the cache is for perplexity: give --task perplexity and --cache-window")
        if not 0 <= self.seed < 2**32:
            raise ValueError(f"seed must lie in [0, 2^32), got {self.seed}")
        if self.judge is not None and self.task != "complete":
            raise ValueError("a judge is for continuations: give --judge with --task complete")
        drawn = (self.max_new_tokens, self.sampling, self.seed) != (20, Sampling(temperature=0.0), 0)
        if drawn and self.task != "complete":
            raise ValueError("max_new_tokens, sampling and seed are of continuations: give --task complete")
        if self.num_beams < 1:
            raise ValueError(f"num_beams must be at least 1, got {self.num_beams}")
        if self.num_beams > 1 and (self.task != "complete" or self.seed or self.sampling != Sampling(temperature=0.0)):
            raise ValueError(
                "beam search is for --task complete, and draws nothing: leave out temperature, top_k, top_p and seed"
            )
        if not self.sampling.temperature and (self.seed or self.sampling != Sampling(temperature=0.0)):
            raise ValueError(
                "at temperature 0 nothing is drawn: give --temperature, or leave out top_k, top_p and seed"
            )
        if self.task == "complete" and self.record is not None and self.judge is None:
            raise ValueError("continuations have no number of their own: give --judge RUN, or leave out --record")
        if self.max_new_tokens < 1:
            raise ValueError(f"max_new_tokens must be at least 1, got {self.max_new_tokens}")


def score(command: Evaluate) -> Scores:
    """Scores a run; writes nothing.

    Raises:
      RunError, DamagedCheckpointError: when there is no such run or checkpoint, or it cannot do the task.
      RunMismatchError: when the data has changed since the run began.
      DataError: when there is no such split, or the file cannot be scored.
    """
    run = load_run(command.run, checkpoint=command.checkpoint)
    config = folder.read_config(run.folder)
    match command.task:
        case "objective":
            asked = command.predictions is not None
            return tasks.objective(run, config, command.split, command.file, asked=asked)
        case "perplexity":
            return tasks.perplexity(run, config, command.split, command.file, command.neural_cache)
        case "next_word":
            return tasks.next_word(run, config, command.file)
        case "complete":
            return tasks.complete(
                run,
                config,
                command.file,
                max_new_tokens=command.max_new_tokens,
                sampling=command.sampling,
                seed=command.seed,
                num_beams=command.num_beams,
                judging=None if command.judge is None else load_run(command.judge),
            )


def ledger_entries(scores: Scores) -> list[dict[str, Any]]:
    """An entry for each metric, as the ledger keeps it. Raises: FileNotFoundError when the run's records are gone."""
    run, config = scores.run, scores.config
    environment = json.loads((run.folder / folder.ENVIRONMENT_FILE).read_text(encoding="utf-8"))
    pretrained = environment.get("pretrained_sha256")
    seconds = [
        row["train_seconds"] for row in read_metrics(run.folder / folder.METRICS_FILE) if row["step"] <= run.step
    ]
    return [
        {
            "recipe": config.recipe,
            "metric": metric.rpartition("/")[2],
            "split": "/".join([*metric.split("/")[:-1], scores.split]),  # sts/dev
            "value": value,
            "examples": examples,
            "steps": run.step,
            "train_seconds": max(seconds),
            "seconds_to_first_step": environment.get("seconds_to_first_step"),
            "device": f"{environment['devices']} x {environment['device']}, {environment['cpu_cores']} CPU cores",
            "matmul_dtype_auto": environment.get("matmul_dtype_auto"),
            "versions": environment["versions"],
            "commit": environment["commit"],
            "seed": config.seed,
            "config": to_json(_without_place(config)),
            "command": _anywhere(environment["command"]),
        }
        | ({} if config.init_from is None else {"begun_with": _origin(Path(config.init_from))})
        | ({} if pretrained is None else {"pretrained_sha256": pretrained})
        | scores.remarks
        for metric, (value, examples) in scores.values.items()
    ]


def _origin(run: Path) -> dict[str, Any] | None:
    """What the run cost that another began with; None when it is gone."""
    if not (run / folder.METRICS_FILE).exists():
        return None
    rows = read_metrics(run / folder.METRICS_FILE)
    environment = json.loads((run / folder.ENVIRONMENT_FILE).read_text(encoding="utf-8"))
    return {
        "steps": max(row["step"] for row in rows),
        "train_seconds": max(row["train_seconds"] for row in rows),
        "commit": environment["commit"],
        "command": _anywhere(environment["command"]),
    }


def _without_place(config: TrainConfig) -> TrainConfig:
    if config.init_from is not None:
        config = dataclasses.replace(config, init_from=_run_name(config.init_from))
    if isinstance(config.model, BertModelConfig) and config.model.pretrained is not None:
        config = update(config, **{"model.pretrained": _model_name(config.model.pretrained)})
    return config


def _run_name(place: str) -> str:
    return f"runs/{Path(place).name}"


def _model_name(place: str) -> str:
    """Of a pretrained model: a name stays, of a folder its own."""
    return place if place.count("/") <= 1 and not Path(place).is_dir() else Path(place).name


_PLACES = {
    "--workdir": _run_name,
    "--init-from": _run_name,
    "--model.pretrained": _model_name,
}


def _anywhere(command: str | None) -> str | None:
    """A command without the places of folders, which decide no number; None when nobody typed one."""
    if command is None:
        return None
    words = shlex.split(command)
    for i, word in enumerate(words):
        for option, name in _PLACES.items():
            if word == option:
                words[i + 1 : i + 2] = [name(place) for place in words[i + 1 : i + 2]]
            elif word.startswith(f"{option}="):
                words[i] = f"{option}={name(word.partition('=')[2])}"
    return shlex.join(words)


def record(entries: list[dict[str, Any]], ledger: Path, run: Path) -> Path:
    """Adds entries to a ledger file; the run's metrics, thinned, go beside it. Returns: the metrics' path."""
    held = json.loads(ledger.read_text(encoding="utf-8")) if ledger.exists() else []
    ledger.parent.mkdir(parents=True, exist_ok=True)
    folder.write_json(ledger, held + entries)
    rows = read_metrics(run / folder.METRICS_FILE)
    training = [row for row in rows if row["split"] == "train"]
    stride = max(1, -(-len(training) // max(1, MOST_METRICS_LINES - (len(rows) - len(training)))))
    dropped = {id(row) for number, row in enumerate(training) if number % stride}
    kept = [row for row in rows if id(row) not in dropped]
    metrics = ledger.with_suffix(".metrics.jsonl")
    folder.write_text(metrics, "".join(json.dumps(row) + "\n" for row in kept))
    return metrics


def write_predictions(scores: Scores, place: Path) -> list[Path]:
    """Writes answers to a file, or where there are files of them, these to a folder. Returns: what was written.

    Raises: OSError when the place is a folder and should be a file, or the other way round.
    """
    if scores.files:
        if place.is_file():
            raise NotADirectoryError(f"--predictions {place} is a file; give a folder, for a file of each task")
        place.mkdir(parents=True, exist_ok=True)
        for name, text in scores.files.items():
            folder.write_text(place / name, text)
        return [place / name for name in scores.files]
    if place.is_dir():
        raise IsADirectoryError(f"--predictions {place} is a folder; give a file to write to")
    folder.write_text(place, "".join(f"{line}\n" for line in _one_line_each(scores.answers)))
    return [place]


def _one_line_each(answers: Sequence[str]) -> list[str]:
    """Also of a model that writes line feeds."""
    return [" ".join(answer.splitlines()) for answer in answers]


def main(arguments: list[str] | None = None) -> int:
    """Exit status: 0 done, 1 a broken run, 2 a wrong command."""
    try:
        command = tyro.cli(Evaluate, args=arguments, prog="python -m train.evaluate")
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    use_compilation_cache(None)
    try:
        scores = score(command)
    except DamagedCheckpointError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except (RunError, ConfigError, DataError, QuestionError, folder.RunMismatchError, FileNotFoundError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    counted = COUNTED.get(scores.config.objective, "tokens")
    for metric, (value, examples) in scores.values.items():
        unit = {"exact_match": "questions", "mlm/loss": "masked pieces", "mlm/accuracy": "masked pieces"}.get(
            metric, counted
        )
        print(f"{scores.split} {metric} {value:.4f}  ({examples:,} {unit})")
    if not scores.values and command.task != "complete":
        answers = len(scores.answers) + sum(text.count("\n") - 1 for text in scores.files.values())
        print(f"{scores.split}: no targets provided, so there is no score; {answers:,} answers")
    if command.predictions is None and (not scores.values or command.task == "complete"):
        lines = _one_line_each(scores.answers) or list(scores.files.values())
        prompts = [f"{prompt} | " for prompt in scores.prompts] or [""] * len(lines)
        print("\n".join(prompt + line for prompt, line in zip(prompts, lines, strict=True)))
    try:
        if command.predictions is not None:
            for written in write_predictions(scores, command.predictions):
                print(f"predictions in {written}")
        if command.record is not None and not scores.values:
            print(f"error: {scores.split} has no targets, so there is nothing to record", file=sys.stderr)
            return 2
        if command.record is not None:
            record(ledger_entries(scores), command.record, command.run)
            print(f"recorded in {command.record}")
            newest, last = checkpoint_steps(command.run)[-1], scores.config.total_steps
            if newest < last:
                print(f"note: {command.run} has not ended, it has {newest:,} of {last:,} steps: the entry is of a part")
    except OSError as error:
        print(f"error: cannot write: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
