"""`jaxnlp train RECIPE [--FIELD VALUE ...]` trains a recipe; `jaxnlp train --resume FOLDER` continues its run."""

import shlex
import sys
from pathlib import Path

from rich.console import Console

from jaxnlp.cli.messages import program_name, reason
from jaxnlp.cli.programs import STARTED
from jaxnlp.inference.caches import use_compilation_cache
from jaxnlp.saving.checkpoint_reading import checkpoint_steps
from train.cli.command_line import RunOptions, parse, parse_resumed, print_config
from train.config import TrainConfig
from train.loop import fit
from train.run.folder import read_environment, writes_folder
from train.run.processes import connected
from train.run.signals import exit_status

PROGRAM = f"{program_name()} train"


def main(arguments: list[str]) -> int:
    """Trains. Returns: the exit status: 0 done; 130 stopped by SIGINT and saved, 143 by SIGTERM, 129 by SIGHUP.

    Raises: ValueError for a wrong command; the errors of `fit`.
    """
    # Folders may have the signs of rich's markup.
    console = Console(soft_wrap=True, markup=False, emoji=False, highlight=False)
    command: str | None = shlex.join(["jaxnlp", "train", *arguments])
    if arguments[:1] == ["--resume"]:
        config, options = parse_resumed(arguments[1:], PROGRAM)
        command = _command_of_resumed(Path(arguments[1]), arguments[2:])
    else:
        config, options = parse(arguments, RunOptions(), program=PROGRAM)
    workdir = options.workdir or Path("runs") / config.recipe
    try:
        with connected(options, workdir.expanduser()):
            return _train(config, options, workdir, console, command)
    except KeyboardInterrupt:
        print(f"interrupted; {_last_checkpoint(workdir)}; repeat the command to resume", file=sys.stderr)
        return 130


def _train(config: TrainConfig, options: RunOptions, workdir: Path, console: Console, command: str | None) -> int:
    """Trains in this process. Returns: the exit status."""
    use_compilation_cache(options.compilation_cache)
    console.quiet = not writes_folder()
    print_config(console, config)
    try:
        result = fit(
            config,
            workdir,
            parallel=options.parallel,
            mesh=options.mesh,
            extend=options.extend,
            console=console,
            started=STARTED,
            command=command,
        )
    except OSError as error:
        if isinstance(error, FileNotFoundError | BrokenPipeError):
            raise
        # Such as a full disk, or a folder that must not be written to.
        raise OSError(f"{reason(error)}; {_last_checkpoint(workdir)}") from error
    if result.stopped_by is not None:
        step = int(result.state.step)
        console.print(f"stopped by {result.stopped_by} at step {step}; saved; repeat the command to resume")
    console.print(f"run     {workdir}\nreport  {workdir / 'report.html'}\nplots   {workdir / 'plots'}")
    return 0 if result.stopped_by is None else exit_status(result.stopped_by)


def _last_checkpoint(workdir: Path) -> str:
    """The last checkpoint of a run that ended with an error, in words."""
    steps = checkpoint_steps(workdir)
    return f"the last checkpoint is step {steps[-1]}" if steps else "no checkpoint was saved"


def _command_of_resumed(workdir: Path, fields: list[str]) -> str | None:
    """The command that started a run, with the fields that differ now; None if unknown."""
    try:
        before = read_environment(workdir).get("command")
    except FileNotFoundError:  # it was killed before its first step
        return None
    return None if before is None else shlex.join([*shlex.split(before), *fields])
