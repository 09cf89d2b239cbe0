"""`jaxnlp evaluate RUN... [EVALUATOR]`: scores runs on a split or a file, and records the numbers."""

import dataclasses
import functools
import inspect
import logging
import re
import statistics
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from jaxnlp.cli.format_options import FileFormat
from jaxnlp.cli.messages import program_name, wrapped
from jaxnlp.cli.options import read_options
from jaxnlp.cli.suggestions import suggestion
from jaxnlp.corpus import Corpus, DataError, Split
from jaxnlp.inference.caches import use_compilation_cache
from jaxnlp.metric_kind import singular
from jaxnlp.models import ModelConfig
from jaxnlp.runs import Checkpoint, find_task, load_run, read_config_json
from jaxnlp.saving.atomic_files import FORMATS, require_place, wrong_format
from jaxnlp.saving.checkpoint_reading import RunError, checkpoint_steps, read_checkpoint
from jaxnlp.saving.serialization import differences, to_json
from jaxnlp.tasks import Evaluation, Evaluator, Trained
from jaxnlp.typing import Params
from train.config import TrainConfig
from train.evaluation import ledger
from train.evaluation.scoring import SplitScoring
from train.parallel import DeviceOptions, Parallel, make_parallel
from train.report import write_report
from train.run import folder as run_folder
from train.run.continuation import data_of

_logger = logging.getLogger(__name__)

PROGRAM = f"{program_name()} evaluate"
USAGE = f"""usage: {PROGRAM} RUN... [EVALUATOR] [options]

Scores a run on a split of its data or on a file. Several runs must differ only in their seeds: then it prints the mean
and the standard deviation of each number.

RUN is a run's folder. EVALUATOR is the name of one of its task's evaluators; by default it is validation.

{PROGRAM} RUN --help shows the run's evaluators, and the options of validation. {PROGRAM} RUN EVALUATOR --help shows
the options of another evaluator."""


@dataclasses.dataclass(frozen=True)
class Options(DeviceOptions):
    """Input, output and devices of an evaluation."""

    split: str | None = None
    """Split of the run's data set; None = the evaluator's default, usually validation."""
    file: Path | tuple[Path, ...] | None = None
    """Score this file, in the format of the run's data, instead of a split; or a file of sources and one of targets, as
    for --data.train."""
    checkpoint: Checkpoint = "best"
    """best on the validation split, latest, or a step."""
    predictions: Path | None = None
    """Write the predictions to this file, or into this directory, which may be new if the evaluator writes several
    files. The evaluator's description says what they contain."""
    record: Path | None = None
    """Append the results to this ledger file, such as docs/results/RECIPE.json, and copy the run's metrics next to it.
    Further runs get their own files, such as RECIPE-seed1.json. Files to score must be in JAXNLP_DATA; their names
    replace the split."""

    data: FileFormat = dataclasses.field(default_factory=FileFormat)

    def __post_init__(self):
        super().__post_init__()
        self.data.check_files(self.file)
        if self.file is not None and self.split is not None:
            raise ValueError(f"--file cannot be combined with --split {self.split}")
        if self.record is not None:
            ledger.public_name(self.files)

    @property
    def files(self) -> tuple[Path, ...]:
        """The files to score; () = a split."""
        return self.file if isinstance(self.file, tuple) else () if self.file is None else (self.file,)


@dataclasses.dataclass(frozen=True)
class Scores:
    """The results of an evaluator on a run.

    Attributes:
      trained: the run.
      config: of the run.
      split: name of the split, or the file.
      evaluation: the results.
      units: of each metric's count.
    """

    trained: Trained
    config: TrainConfig
    split: str
    evaluation: Evaluation
    units: dict[str, str]


def score(run: Path, evaluator: Evaluator, options: Options) -> Scores:
    """Scores a run; writes nothing.

    Raises:
      RunError, DamagedCheckpointError: when there is no such run or checkpoint, or it cannot be read.
      RunMismatchError: when the data has changed since the run started.
      DataError: when there is no such split, or the file cannot be scored.
      ConfigError: as `make_parallel` and `Parallel.of_model`.
    """
    layout = make_parallel(options.parallel, mesh=options.mesh)

    def laid_out(model: ModelConfig, shapes: Params) -> Params:
        nonlocal layout
        layout = layout.of_model(model, shapes)
        return layout.like(shapes)

    trained = load_run(run, checkpoint=options.checkpoint, laid_out=laid_out)
    config = run_folder.read_config(run)
    corpus, training = None, None
    if options.files:
        name = " ".join(map(str, options.files)) if options.record is None else ledger.public_name(options.files)
        split = config.data.in_format(options.data.given).read_files(options.files, trained.processor)
    else:
        record = read_checkpoint(run, options.checkpoint, lambda found: found)
        corpus = data_of(run, config, trained.processor, record)
        name = options.split or evaluator.default_split
        split, training = corpus.split(name), corpus.splits.get("train")
    for note in split.notes:
        _logger.warning("%s: %s", name, note)
    print(f"scoring {run} on {name}; it compiles first", file=sys.stderr, flush=True)
    score_split = functools.partial(
        evaluated, trained, evaluator, name=name, corpus=corpus, training=training, layout=layout
    )
    evaluation = score_split(split)
    if split.unlabelled is not None and evaluation.predictions:
        others = score_split(split.unlabelled).predictions
        whole = {file: _filled(text, others[file]) for file, text in evaluation.predictions.items()}
        evaluation = evaluation._replace(predictions=whole)
    kinds = {**trained.task.metrics(trained.processor, split), **evaluator.metrics}
    units = {metric: kind.of for metric, kind in kinds.items()}
    return Scores(trained, config, name, evaluation, units)


def _filled(text: str, other: str) -> str:
    """Two files of predictions, with at most one prediction for each row of a file, as one file. A row without a
    prediction has empty fields, so its line is shorter."""
    lines = zip(text.splitlines(keepends=True), other.splitlines(keepends=True), strict=True)
    return "".join(max(pair, key=len) for pair in lines)


def evaluated(
    trained: Trained,
    evaluator: Evaluator,
    split: Split,
    name: str,
    *,
    corpus: Corpus | None,
    training: Split | None,
    layout: Parallel,
) -> Evaluation:
    """The evaluation of a model on a split of this name. Args: corpus and training: if any."""
    placed = dataclasses.replace(trained, params=layout.place(trained.params))
    objective = trained.task.objective(trained.model, corpus or Corpus((), {}, trained.processor, "", ""))
    return evaluator(SplitScoring(placed, split, name, training=training, objective=objective, layout=layout, kept={}))


def find_evaluator(run: Path, name: str) -> type[Evaluator]:
    """One of the evaluators of a run's task. Raises: RunError for other folders, and for an unknown name."""
    read_config_json(run)  # refuses other folders, and names that would be looked for on the Hugging Face Hub
    evaluators = find_task(run).evaluators
    if name not in evaluators:
        raise RunError(f"the run in {run} has no evaluator {name!r}; {suggestion(name, evaluators)}")
    return evaluators[name]


def parse(
    kind: type[Evaluator], flags: list[str], program: str, known: Iterable[str] = ()
) -> tuple[Evaluator, Options]:
    """An evaluator's own options and the common ones; help also lists the known evaluators.

    Exits with status 0 after help. Raises: ValueError.
    """
    names = ", ".join(known)
    description = inspect.cleandoc(kind.__doc__ or "") + (f"\n\nEvaluators of this run: {names}." if names else "")
    evaluator, options = read_options([kind, Options], flags, program=program, description=description)
    return evaluator, options


def write_predictions(
    evaluation: Evaluation, path: Path, check: Callable[[Path], None] = lambda path: None
) -> list[Path]:
    """Writes the predictions: one file to a file or into a directory, several into a directory. Returns: their paths.

    Args:
      evaluation: with predictions.
      path: of the file or the directory.
      check: refuses a file that must not be replaced, before any is written.

    Raises: OSError for a file instead of a directory; and as `check`.
    """
    files = evaluation.predictions
    for name in files:
        check(path / name)
    if len(files) == 1 and not path.is_dir():
        run_folder.write_text(path, *files.values())
        suffix = Path(*files).suffix
        if problem := wrong_format(path, (suffix, *(() if suffix in FORMATS else (".tsv",)))):
            _logger.warning(problem)
        return [path]
    if path.is_file():
        raise NotADirectoryError(f"--predictions {path} is a file; give a directory, for {', '.join(files)}")
    for name, text in files.items():
        run_folder.write_text(path / name, text)
    return [path / name for name in files]


def split_arguments(arguments: list[str]) -> tuple[list[Path], str, list[str]]:
    """The runs, the name of the evaluator, and the options of a command."""
    words = next((index for index, word in enumerate(arguments) if word.startswith("-")), len(arguments))
    first, *more = arguments[:words]
    name = "validation"
    if more and not Path(more[-1]).expanduser().is_dir():
        *more, name = more
    return [Path(run).expanduser() for run in (first, *more)], name, arguments[words:]


def check_seeds(runs: Sequence[Path]) -> None:
    """Raises RunError for runs that differ in more than their seeds, or have the same seed."""
    first = run_folder.read_config(runs[0])
    seen: dict[int, Path] = {}
    for run in runs:
        config = run_folder.read_config(run)
        same = dataclasses.replace(config, seed=first.seed)
        if config.recipe != first.recipe:  # most fields differ: a list of them would not help
            raise RunError(f"{runs[0]} and {run} are runs of different recipes; score them one by one")
        changed = differences(first, same)
        if changed:
            lines = "".join(f"\n  {line}" for line in changed)
            raise RunError(f"{runs[0]} and {run} differ in more than their seed; score them one by one:{lines}")
        if config.seed in seen:
            raise RunError(f"{seen[config.seed]} and {run} have the same seed, {config.seed}; give each run once")
        seen[config.seed] = run


def summary(values: Sequence[float]) -> str:
    """The mean and the standard deviation of several runs' values, and the values."""
    each = ", ".join(f"{value:.4f}" for value in values)
    return f"mean {statistics.mean(values):.4f}, standard deviation {statistics.stdev(values):.4f}, of {each}"


def texts_in(value: Any) -> Iterator[str]:
    """All texts in the fields of a config, as JSON."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from texts_in(inner)


def refuse_data_file(out: Path, files: Sequence[Path], config: TrainConfig) -> None:
    """Raises DataError when a file to write is a file to score, or of the run's data."""
    named = {name for text in texts_in(to_json(config.data)) for name in (text, *re.split("[=,]", text)) if name}
    for file in (*files, *map(Path, named)):
        if out.is_file() and file.is_file() and out.samefile(file):
            raise DataError(f"--predictions {out} is a file of the data, which it would replace; give another file")


def ledger_of(record: Path, index: int, seed: int) -> Path:
    """The ledger file of a run: `record` for the first run, RECIPE-seed1.json for others."""
    return record if index == 0 else record.with_name(f"{record.stem}-seed{seed}{record.suffix}")


def show(scores: Scores) -> None:
    """Prints the results of one run."""
    for metric, (value, count) in scores.evaluation.metrics.items():
        of = scores.units.get(metric, "examples")
        print(f"{scores.split} {metric} {value:z.4f}  ({count:,} {singular(of) if count == 1 else of})")


def record(scores: Scores, folder: Path, path: Path) -> None:
    """Writes the results of one run to the ledger. Raises: DataError when there are none."""
    evaluation = scores.evaluation
    if not evaluation.metrics:
        raise DataError(f"--record: {scores.split} has no targets, so there is nothing to record")
    ledger.append(ledger.entries(scores.trained, scores.config, scores.split, evaluation), path, folder)
    print(f"recorded in {path}")
    if not run_folder.has_ended(folder, scores.config):
        newest, last = checkpoint_steps(folder)[-1], scores.config.total_steps
        _logger.info(
            "%s has not finished: %s of %s steps; the entry is of an unfinished run",
            *(folder, f"{newest:,}", f"{last:,}"),
        )


def main(arguments: list[str]) -> int:
    """Scores the runs. Returns: the exit status.

    Raises: ValueError, OSError for an invalid command, a damaged run, and a file that cannot be read or written.
    """
    if not arguments or arguments[0].startswith("-"):
        print(wrapped(USAGE))
        return 0 if arguments and arguments[0] in ("-h", "--help") else 2
    folders, name, flags = split_arguments(arguments)
    kind, known = find_evaluator(folders[0], name), find_task(folders[0]).evaluators
    evaluator, options = parse(kind, flags, f"{PROGRAM} {folders[0]} {name}", known)
    check_seeds(folders)
    if options.predictions is not None and len(folders) > 1:
        raise DataError("--predictions needs one run; score the runs one by one")
    require_place(options.record, option="--record")
    if options.predictions is not None and not options.predictions.is_dir():
        require_place(options.predictions, option="--predictions")
    check = functools.partial(refuse_data_file, files=options.files, config=run_folder.read_config(folders[0]))
    if options.predictions is not None:
        check(options.predictions)
    use_compilation_cache(None)
    results = [score(folder, evaluator, options) for folder in folders]
    evaluation = results[0].evaluation
    if len(results) > 1 and not evaluation.metrics:
        raise DataError(f"{results[0].split} has no targets; predict with one run at a time")
    if len(results) == 1:
        show(results[0])
    else:
        for metric in evaluation.metrics:
            print(f"{results[0].split} {metric} {summary([of.evaluation.metrics[metric].value for of in results])}")
    for scores, folder in zip(results, folders, strict=True):
        for file, text in scores.evaluation.run_files.items():
            run_folder.write_text(folder / file, text)
    if options.predictions is None and not evaluation.metrics:
        print(*evaluation.predictions.values(), sep="\n", end="")
    if options.record is not None:
        for index, (scores, folder) in enumerate(zip(results, folders, strict=True)):
            record(scores, folder, ledger_of(options.record, index, scores.config.seed))
    if options.predictions is not None:
        if not evaluation.predictions:
            raise DataError(f"--predictions: {results[0].split} has nothing to predict")
        for written in write_predictions(evaluation, options.predictions, check):
            print(f"predictions in {written}")
        if options.predictions.resolve().is_relative_to(folders[0].resolve()):
            print(f"the report links to them: {write_report(folders[0])}")
    return 0
