"""The command line of training: a recipe's name, then fields of its config. Suggests options for names of other
tools."""

import dataclasses
import re
import sys
from pathlib import Path
from typing import TypeVar

from rich.console import Console

from jaxnlp.cli.options import read_options, with_kinds
from jaxnlp.cli.programs import program_summary
from jaxnlp.cli.suggestions import similar_options
from jaxnlp.config import Config
from jaxnlp.runs import read_config_json
from jaxnlp.saving.serialization import differences
from train.cli.help import help_topic, show_topic
from train.config import TrainConfig, update
from train.parallel import DeviceOptions
from train.recipes import UnknownRecipeError, load_recipe, recipe_docstring, recipe_of
from train.run import folder as run_folder
from train.run.processes import ProcessOptions

Options = TypeVar("Options", bound=Config)


OTHER_NAMES = {
    "optimizer.learning-rate": ("lr", "learning-rate"),
    "optimizer.weight-decay": ("wd", "weight-decay"),
    "optimizer.schedule.warmup": ("warmup", "warmup-steps", "warmup-iters"),
    "optimizer.schedule.end": ("lr-decay-iters",),
    "optimizer.schedule.min-lr-ratio": ("min-lr",),
    "optimizer.schedule": ("lr-scheduler-type",),
    "optimizer.max-grad-norm": ("grad-clip", "max-grad-norm"),
    "data.batch-size": ("bs", "batch-size", "per-device-train-batch-size", "train-batch-size"),
    "accumulation-steps": ("gradient-accumulation-steps", "grad-accum"),
    "total-steps": (
        *("steps", "max-steps", "num-steps", "max-iters", "iterations"),
        *("epochs", "epoch", "num-epochs", "max-epochs", "num-train-epochs"),
    ),
    "evaluate-every-steps": ("eval-steps", "eval-interval"),
    "checkpoint-every-steps": ("save-steps",),
    "log-every-steps": ("logging-steps", "log-interval"),
    "best-metric": ("metric-for-best-model", "load-best-model-at-end"),
    "stop-after": ("patience", "early-stopping", "early-stopping-patience"),
    "task.label-smoothing": ("label-smoothing-factor",),
    "model.compute.matmul-dtype": ("bf16", "fp16"),
    "model.compute.remat": ("gradient-checkpointing",),
    "model.num-layers": ("n-layer",),
    "model.num-heads": ("n-head",),
    "model.width": ("n-embd",),
    "model.context-length": ("block-size",),
    "workdir": ("output-dir", "out-dir", "resume", "resume-from", "resume-from-checkpoint"),
    "init-from": ("init", "model-name-or-path"),
    "data.overlap": ("stride", "doc-stride"),
    "data.max-length": ("max-seq-length", "max-seq-len"),
}
"""Options, and their names in other tools."""
_OF_EPOCHS = re.compile(r"there is no option --\S*epochs?\b")


class UsageError(ValueError):
    """An invalid command; the message says why."""


@dataclasses.dataclass(frozen=True)
class RunOptions(ProcessOptions, DeviceOptions):
    """Options of one start of a run; they do not change its numbers."""

    usual = ("workdir",)

    workdir: Path | None = None
    """Folder of the run; None = runs/RECIPE. To resume a run, repeat the command, or give only --resume FOLDER."""
    extend: bool = False
    """Allow more total steps than at the run's start, even if the learning-rate schedule depends on their number: the
    remaining steps then follow the longer schedule."""
    compilation_cache: Path | None = None
    """Compilation cache folder; None = $JAX_COMPILATION_CACHE_DIR, or a folder in jaxnlp's cache."""


def parse(arguments: list[str], options: Options, *, program: str) -> tuple[TrainConfig, Options]:
    """Parses a command: a recipe's name, then fields of its config and of the program's options.

    Exits with status 0 after help, and with status 2 after tyro's error for a value that is missing or of the wrong
    type.

    Args:
      arguments: the command without the program's name.
      options: a dataclass instance with the program's own options at their defaults.
      program: the program's name in messages, such as `jaxnlp train`.

    Returns: the config and the options.

    Raises: UnknownRecipeError; UsageError for a missing recipe, unknown fields, and values that the config refuses.
    """
    if not arguments or arguments[0].startswith("-"):
        got = arguments[0] if arguments else "none"
        raise UsageError(f"the first argument must be a recipe, got {got}; list the recipes with {program} --help")
    name, *fields = arguments
    return _typed(load_recipe(name), options, fields, program=f"{program} {name}")


def parse_resumed(arguments: list[str], program: str) -> tuple[TrainConfig, RunOptions]:
    """Parses the arguments of `--resume`: a run's folder, then fields that differ from the run's.

    Returns: the run's initial config, with these fields; and the options.

    Raises: UsageError, RunError, ConfigError.
    """
    if not arguments or not arguments[0] or arguments[0].startswith("-"):
        raise UsageError(f"--resume needs the run's folder: {program} --resume FOLDER")
    given, *fields = arguments
    folder = Path(given).expanduser()
    folder = folder if folder.parts else Path.cwd()  # a run's folder has a name, see `check_path`
    read_config_json(folder)  # names the runs inside, where it is not one
    options = RunOptions(workdir=folder)
    config = run_folder.read_config(folder, typed=True)
    config, options = _typed(config, options, fields, program=f"{program} --resume {given}")
    if options.workdir != folder:
        raise UsageError(f"--resume {given} continues in that folder; remove --workdir")
    return config, options


def _typed(config: TrainConfig, options: Options, fields: list[str], *, program: str) -> tuple[TrainConfig, Options]:
    """The config and the options, with the fields of a command."""
    topic = help_topic(fields)
    try:
        if topic is not None:
            # Source, Cost, Expect and Command are paragraphs; the lines of a paragraph are joined.
            description = re.sub(r"(?<!\n)\n(?=[A-Z]\w+: )", "\n\n", recipe_docstring(config.recipe))
            summary = program_summary(program.rpartition(" ")[0])
            if summary:
                description = f"{summary} The recipe:\n\n{description}"
            show_topic(topic, (options, with_kinds(config, fields)), program=program, description=description)
            sys.exit(0)
        options, config = read_options((options, config), fields, program=program, similar=similar)
        return config, options
    except ValueError as error:  # a config refuses a field
        epochs = "; steps are batches: epochs x examples / batch size" if _OF_EPOCHS.match(str(error)) else ""
        raise UsageError(f"{error}{epochs}") from error


def similar(option: str, known: list[str]) -> list[str]:
    """The known options most similar to one without its dashes, by names in other tools too."""
    last = option.rpartition(".")[2]
    ours = [name for name, others in OTHER_NAMES.items() if last in others and name in known]
    return ours or similar_options(option, known)


def print_config(console: Console, config: TrainConfig) -> None:
    """Prints the differences between a config and its recipe."""
    try:
        recipe = recipe_of(config)
    except UnknownRecipeError:  # a run that continues, whose recipe was given by a path
        console.print(f"recipe {config.recipe}")
        return
    if not config.data.few_lengths:  # a run that continues has the value for its device; nobody has chosen it
        config = update(config, **{"data.few_lengths": recipe.data.few_lengths})
    changed = differences(recipe, config)
    console.print(f"recipe {config.recipe}, {'with' if changed else 'unchanged'}")
    for line in changed:
        console.print(f"  {line}")
