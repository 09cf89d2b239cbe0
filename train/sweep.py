"""`jaxnlp sweep RECIPE --grid FIELD=VALUE,VALUE ...`: trains every combination.

With --ablate instead of --grid, it trains the unchanged recipe, and one run for each value.

Each run has its own process, so a failed run does not end the others. With --at-once one program trains all, see
`train.at_once`. To resume, repeat the command: finished runs are skipped.
"""

import argparse
import csv
import dataclasses
import functools
import io
import itertools
import shlex
import signal
import subprocess
import sys
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from rich.console import Console

from jaxnlp.cli.messages import program_name, wrapped
from jaxnlp.cli.options import EMPTY
from jaxnlp.cli.programs import command_of
from jaxnlp.inference.caches import use_compilation_cache
from jaxnlp.saving.atomic_files import write_file
from jaxnlp.saving.serialization import differences, to_json
from train.cli.command_line import RunOptions, UsageError, parse, similar
from train.cli.help import help_topic
from train.compare import flat_fields, measured_metrics, read_runs, write_comparison
from train.config import TrainConfig
from train.recipes import load_recipe
from train.run import folder as run_folder
from train.run import lock
from train.run.continuation import check_ended, check_folder
from train.run.signals import exit_status, handled

PROGRAM = f"{program_name()} sweep"

USAGE = f"""usage: {PROGRAM} RECIPE --grid FIELD=VALUE,VALUE ... [options]
       {PROGRAM} RECIPE --ablate FIELD=VALUE,VALUE ... [options]
       {PROGRAM} RECIPE --seeds N [options]

--grid trains a run for every combination of the values. --ablate trains the recipe without a change, and then one run
for each value, which differs from the recipe in this field only. A field that takes several values has blanks between
them: "model.windows=2 3,3 4 5" are two runs, with two windows and with three. The value {EMPTY} is an empty list.
--seeds N is short for --grid seed=0,1,...,N-1.

--at-once trains all runs with one program, on one device, if they differ only in seed and in numbers of the optimizer,
such as optimizer.learning_rate. On an accelerator that takes less time for small models.

Each run has its own folder in DIR, which --workdir DIR gives; the default is runs/sweep_RECIPE. Without --at-once, runs
are trained one after another. The results are in DIR/sweep.csv and DIR/sweep.html. All other options are those of
jaxnlp train, and apply to every run: {program_name()} train RECIPE --help shows them.

An example, with four runs:

  {PROGRAM} RECIPE --total-steps 500 \\
      --grid optimizer.learning_rate=1e-3,3e-3 seed=0,1"""

VARIATIONS = ("--grid", "--ablate")
MOST_SEEDS = 1000

Train = Callable[[Sequence[str], Path], int]
"""Trains a run: (arguments of `jaxnlp train`, file for its output) -> exit status."""


@dataclasses.dataclass(frozen=True)
class SweptRun:
    """A run of one combination of values.

    Attributes:
      values: the value of each varied field, as typed, or the recipe's.
      arguments: of `jaxnlp train`.
      config, options: from these arguments.
      folder: the run's folder.
    """

    values: Mapping[str, str]
    arguments: tuple[str, ...]
    config: TrainConfig
    folder: Path
    options: RunOptions = dataclasses.field(default_factory=RunOptions)

    @property
    def finished(self) -> bool:
        """Whether the run has done its last step, or has stopped early."""
        return run_folder.has_ended(self.folder, self.config)

    @property
    def log(self) -> Path:
        """The file with the run's output."""
        return self.folder.with_name(f"{self.folder.name}.log")


@dataclasses.dataclass(frozen=True)
class SweepCommand:
    """The parts of a sweep's command.

    Attributes:
      recipe: the recipe's name.
      grid: the arguments of --grid or --ablate, each FIELD=VALUE,VALUE; --seeds adds one.
      ablate: whether they are those of --ablate.
      workdir: the sweep's folder.
      others: arguments of every run.
      at_once: whether one program trains all runs.
    """

    recipe: str
    grid: list[str]
    ablate: bool
    workdir: Path
    others: list[str]
    at_once: bool = False


def read_command(arguments: Sequence[str]) -> SweepCommand:
    """Splits a command.

    Raises: UsageError when the recipe, the values to vary or the folder is missing, and for both --grid and --ablate.
    """
    if not arguments or arguments[0].startswith("-"):
        raise UsageError(f"the first argument must be a recipe; {PROGRAM} --help shows an example")
    recipe, *rest = arguments
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    for option in VARIATIONS:
        parser.add_argument(option, dest=option, nargs="*", action="extend")
    parser.add_argument("--workdir", nargs="?", const="", default=f"runs/sweep_{recipe}")
    parser.add_argument("--seeds", nargs="?", const="")
    parser.add_argument("--at-once", action="store_true")
    try:
        options, others = parser.parse_known_args([*itertools.chain.from_iterable(map(_words, rest))])
    except argparse.ArgumentError as error:
        raise UsageError(f"{error.argument_name} {error.message}") from error
    if not options.workdir:
        raise UsageError("--workdir needs a folder")
    grids = {option: values for option in VARIATIONS if (values := vars(options)[option]) is not None}
    if options.seeds is not None:
        if not options.seeds.isdecimal() or not 1 <= int(options.seeds) <= MOST_SEEDS:
            raise UsageError(f"--seeds needs a number from 1 to {MOST_SEEDS:,}, got {options.seeds!r}")
        grids.setdefault("--grid", []).append(f"seed={','.join(map(str, range(int(options.seeds))))}")
    if len(grids) > 1:
        raise UsageError("--ablate excludes --grid and --seeds; give one of them")
    option, grid = next(iter(grids.items()), ("--grid", []))
    if not grid:
        what = "has no values" if grids else "is missing"
        raise UsageError(f"{option} {what}; give the fields to vary with {option} FIELD=VALUE,VALUE")
    workdir = Path(options.workdir).expanduser()
    return SweepCommand(recipe, grid, option == "--ablate", workdir, others, options.at_once)


def _words(argument: str) -> list[str]:
    """An argument; an option such as --grid=VALUE as option and value."""
    option, equals, value = argument.partition("=")
    if option == "--at_once":
        return [f"--at-once{equals}{value}"]
    return [option, value] if equals and option in (*VARIATIONS, "--seeds", "--workdir") else [argument]


def read_grid(grid: Sequence[str], config: TrainConfig) -> dict[str, list[str]]:
    """The values of each field, as typed.

    Raises: UsageError for an unknown field, a field without values, and invalid values.
    """
    known = flat_fields(to_json(config))
    values_of: dict[str, list[str]] = {}
    for one in grid:
        name, _, values = one.partition("=")
        listed = [value for value in values.split(",") if value]
        if name not in known:
            options = [field.replace("_", "-") for field in known]
            nearest = similar(name.replace("_", "-"), options)
            hint = f"; did you mean {' or '.join(nearest).replace('-', '_')}?" if nearest else ""
            raise UsageError(f"{one}: recipe {config.recipe} has no field {name}{hint}")
        if not listed:
            raise UsageError(f"{one}: expected FIELD=VALUE,VALUE, such as {name}=1,2")
        if name in values_of or len(set(listed)) < len(listed):
            raise UsageError(f"{one}: each field and each value may occur only once")
        if isinstance(known[name], bool) and {value.lower() for value in listed} - {"true", "false"}:
            raise UsageError(f"{one}: the values of {name} must be true or false")
        values_of[name] = listed
    return values_of


def plan(command: SweepCommand) -> list[SweptRun]:
    """All runs, in order; the last field of a grid varies fastest. All configs are checked.

    Raises:
      UsageError: for a wrong grid, and for two runs with equal configs or the same folder.
      UnknownRecipeError: for an unknown recipe.
      SystemExit: with status 2, after a message, for a value of the wrong type.
    """
    default = load_recipe(command.recipe)
    values = read_grid(command.grid, default)
    if command.ablate:
        changes: list[dict[str, str]] = [{}, *({name: value} for name in values for value in values[name])]
    else:
        changes = [dict(zip(values, chosen, strict=True)) for chosen in itertools.product(*values.values())]
    runs = []
    for changed in changes:
        flags = [flag for name, value in changed.items() for flag in _flags(name, value, default)]
        arguments = (command.recipe, *command.others, *flags)
        config, options = parse([*arguments], RunOptions(), program=f"{program_name()} train")
        others = differences(RunOptions(), dataclasses.replace(options, compilation_cache=None))
        if command.at_once and others:
            names = ", ".join(f"--{line.partition(':')[0].replace('_', '-')}" for line in others)
            raise UsageError(f"--at-once trains new steps on one device, from one process; remove {names}")
        name = ",".join(f"{name.rpartition('.')[2]}={value}" for name, value in changed.items()) or "unchanged"
        folder = command.workdir / "".join(c if c.isalnum() or c in "=,.-_+" else "_" for c in name)
        fields = flat_fields(to_json(config))
        shown = {name: changed.get(name, str(fields[name])) for name in values}
        runs.append(SweptRun(shown, (*arguments, f"--workdir={folder}"), config, folder, options))
    configs = [to_json(run.config) for run in runs]
    for index, run in enumerate(runs):
        first = runs[configs.index(configs[index])]
        if first is not run:
            raise UsageError(f"the runs {first.folder.name} and {run.folder.name} have equal configs; remove a value")
    if len({run.folder for run in runs}) < len(runs):
        raise UsageError("two runs of the grid would have the same folder; use values that differ in letters or digits")
    return runs


def _flags(name: str, value: str, config: TrainConfig) -> Iterator[str]:
    words = name.replace("_", "-")
    *sections, field = name.split(".")
    owner = functools.reduce(getattr, sections, config)
    kind = typing.get_type_hints(type(owner)).get(field)
    if isinstance(getattr(owner, field), bool):
        section, _, last = words.rpartition(".")
        yield f"--{section}{'.' if section else ''}{last if value.lower() == 'true' else 'no-' + last}"
    else:
        several = any(tuple in (one, typing.get_origin(one)) for one in (kind, *typing.get_args(kind)))
        yield f"--{words}"
        yield from shlex.split(value) if several else [value]  # several values have blanks between them


def train_process(arguments: Sequence[str], log: Path) -> int:
    """Trains a run in its own process. Returns: the exit status.

    Raises: KeyboardInterrupt with the name of a signal that stops the sweep, once the run has saved and ended.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    received = list[signal.Signals]()
    process: subprocess.Popen[bytes] | None = None

    def stop(number: signal.Signals) -> None:
        received.append(number)
        if process is not None:
            process.terminate()

    with log.open("ab") as file, handled(stop):
        command, environ = command_of("train", arguments)
        process = subprocess.Popen(command, env=environ, stdout=file, stderr=subprocess.STDOUT)
        if received:  # while it was started
            process.terminate()
        status = process.wait()
    if received:
        raise KeyboardInterrupt(received[0].name)
    return status


def sweep(runs: Sequence[SweptRun], workdir: Path, train: Train = train_process) -> int:
    """Trains the unfinished runs, and writes sweep.csv and sweep.html after each. Returns: the number of failed runs.

    Raises: RunMismatchError when a folder has a run with another config or other data, and while another process sweeps
      in `workdir`; and as `train.run.continuation.check_ended`.
    """
    _check(runs)
    with lock.held(workdir, "runs a sweep"):  # without it, runs that the other trains would count as failed
        return _train_all(runs, workdir, train)


def _check(runs: Sequence[SweptRun]) -> None:
    """Checks the runs that a folder has; `jaxnlp train` checks the data of those that are not finished."""
    for run in runs:
        check_folder(run.folder, run.config)
    for run in runs:
        if run.finished:
            check_ended(run.folder, run.config)


def _train_all(runs: Sequence[SweptRun], workdir: Path, train: Train) -> int:
    failed: dict[Path, str] = {}
    for number, run in enumerate(runs, 1):
        label = f"{number}/{len(runs)}  {run.folder.name}"
        if run.finished:
            print(f"{label}: finished before", flush=True)
            continue
        print(f"{label}: training", flush=True)
        status = train(run.arguments, run.log)
        if status or not run.finished:
            failed[run.folder] = f"failed with status {status}: {_last_line(run.log)}"
            print(f"{label}: {failed[run.folder]}; see {run.log}", flush=True)
        write_results(runs, failed, workdir)
    write_results(runs, failed, workdir)
    return len(failed)


def sweep_at_once(runs: Sequence[SweptRun], workdir: Path) -> int:
    """Trains the unfinished runs with one program, and then writes sweep.csv and sweep.html. Returns: the number of
    failed runs.

    Raises: KeyboardInterrupt when a signal has stopped them; and as `sweep` and `train.at_once.fit_at_once`.
    """
    _check(runs)
    failed: dict[Path, str] = {}
    left = [run for run in runs if not run.finished]
    with lock.held(workdir, "runs a sweep"):
        try:
            if left:
                from train.at_once import fit_at_once

                use_compilation_cache(left[0].options.compilation_cache)
                commands = [shlex.join(["jaxnlp", "train", *run.arguments]) for run in left]
                console = Console(soft_wrap=True, markup=False, emoji=False, highlight=False)
                configs, folders = [run.config for run in left], [run.folder for run in left]
                stopped_by, errors = fit_at_once(configs, folders, commands, console)
                failed = {folder: f"failed: {error}" for folder, error in errors.items()}
                if stopped_by is not None:
                    raise KeyboardInterrupt(stopped_by)
        finally:
            if any((run.folder / run_folder.METRICS_FILE).is_file() for run in runs):
                write_results(runs, failed, workdir)
    return len(failed)


def write_results(runs: Sequence[SweptRun], failed: Mapping[Path, str], workdir: Path) -> None:
    """Writes sweep.csv, one row for each run; and sweep.html, once a run has started."""
    folders = [run.folder for run in runs if (run.folder / run_folder.METRICS_FILE).is_file()]
    compared = dict(zip(folders, read_runs(folders), strict=True))
    metrics = measured_metrics([*compared.values()])
    columns = ["run", *runs[0].values, "status", "step", *(f"best_{name}" for name in metrics), "seconds", "folder"]
    file = io.StringIO()
    table = csv.DictWriter(file, columns, lineterminator="\n")
    table.writeheader()
    for run in runs:
        status = failed.get(run.folder) or ("finished" if run.finished else "not finished")
        row = {"run": run.folder.name, **run.values, "status": status, "step": 0, "folder": run.folder}
        if run.folder in compared:
            result = compared[run.folder]
            row |= {f"best_{name}": result.value(name) for name in metrics} | {"step": result.logged.step}
            row["seconds"] = None if result.logged.train_seconds is None else round(result.logged.train_seconds, 1)
        table.writerow(row)
    write_file(workdir / "sweep.csv", file.getvalue().encode())
    if folders:
        notes = [f"{folder.name} {reason}" for folder, reason in failed.items()]
        write_comparison(folders, workdir / "sweep.html", notes)


def _last_line(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n") if log.exists() else []
    return next((line.strip() for line in reversed(lines) if line.strip()), "no output")


def main(arguments: list[str]) -> int:
    """Runs the sweep. Returns: the exit status: 0 all runs are finished, 1 some failed; 130 stopped by SIGINT, 143 by
    SIGTERM, 129 by SIGHUP.

    Raises: ValueError for a wrong command; OSError.
    """
    if not arguments or help_topic(arguments) is not None:
        print(wrapped(USAGE))
        return 0 if arguments else 2

    def interrupt(number: signal.Signals) -> None:
        raise KeyboardInterrupt(number.name)

    try:
        with handled(interrupt):
            command = read_command(arguments)
            failed = (sweep_at_once if command.at_once else sweep)(plan(command), command.workdir)
    except KeyboardInterrupt as stopped:
        print("interrupted; to resume, repeat the command", file=sys.stderr)
        return exit_status(str(stopped) or signal.SIGINT.name)
    print(f"results  {command.workdir / 'sweep.csv'}\npage     {command.workdir / 'sweep.html'}")
    return 1 if failed else 0
