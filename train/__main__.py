"""Trains a recipe, or continues its run.

`python -m train RECIPE [--FIELD VALUE ...] [--workdir DIR]`, `python -m train --resume DIR [--FIELD VALUE ...]`.
"""

import sys
import time

from train.cli.launcher import program_name, start, start_time

STARTED = start_time(time.time())
if __name__ == "__main__":
    start("train", started=STARTED, recipes=True)

import shlex  # noqa: E402
from pathlib import Path  # noqa: E402

from rich.console import Console  # noqa: E402

from jaxnlp.cli.messages import reason  # noqa: E402
from jaxnlp.inference.caches import use_compilation_cache  # noqa: E402
from jaxnlp.saving.checkpoints import DamagedCheckpointError, checkpoint_steps  # noqa: E402
from train.cli.command_line import WRONG_COMMANDS, RunOptions, parse, parse_resumed, print_config, refuse_resume  # noqa: E402
from train.loop import NonFiniteError, fit  # noqa: E402
from train.run.folder import read_environment  # noqa: E402
from train.run.signals import exit_status  # noqa: E402

PROGRAM = program_name("train")


def main() -> int:
    """Exit status: 0 done; 1 a run that went wrong; 2 a wrong command; 130 stopped by SIGINT and saved, 143 by SIGTERM,
    129 by SIGHUP."""
    console = Console(
        soft_wrap=True, markup=False, emoji=False, highlight=False
    )  # folders may have the signs of rich's markup
    workdir: Path | None = None
    typed: str | None = shlex.join(["python", "-m", "train", *sys.argv[1:]])
    try:
        if sys.argv[1:2] == ["--resume"]:
            config, options = parse_resumed(sys.argv[2:], PROGRAM)
            typed = command_of_resumed(Path(sys.argv[2]), sys.argv[3:])
        else:
            refuse_resume(sys.argv[1:], PROGRAM)
            config, options = parse(sys.argv[1:], RunOptions(), program=PROGRAM)
        workdir = options.workdir or Path("runs") / config.recipe
        use_compilation_cache(options.compilation_cache)
        print_config(console, config)
        outcome = fit(
            config,
            workdir,
            parallel=options.parallel,
            extend=options.extend,
            console=console,
            started=STARTED,
            command=typed,
        )
    except WRONG_COMMANDS as error:
        print(f"error: {reason(error)}", file=sys.stderr)
        return 2
    except (NonFiniteError, DamagedCheckpointError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except OSError as error:  # such as a full disk, or a folder that must not be written to
        print(f"error: {reason(error)}; {last_checkpoint(workdir)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"interrupted; {last_checkpoint(workdir)}; repeat the command to resume", file=sys.stderr)
        return 130
    stopped_by = outcome.stopped_by
    if stopped_by is not None:
        step = int(outcome.state.step)
        console.print(f"stopped by {stopped_by} at step {step}; saved; repeat the command to resume")
    console.print(f"run     {workdir}\nreport  {workdir / 'report.html'}\nplots   {workdir / 'plots'}")
    return 0 if stopped_by is None else exit_status(stopped_by)


def last_checkpoint(workdir: Path | None) -> str:
    """What is left of a run that an error ended; None = the error was in its command."""
    steps = [] if workdir is None else checkpoint_steps(workdir)
    return f"the last checkpoint is step {steps[-1]}" if steps else "no checkpoint was saved"


def command_of_resumed(workdir: Path, fields: list[str]) -> str | None:
    """The command that a run was started with, and the fields that differ from now on; None where it is not known."""
    try:
        before = read_environment(workdir)["command"]
    except FileNotFoundError:  # it was killed before its first step
        return None
    return None if before is None else shlex.join([*shlex.split(before), *fields])


if __name__ == "__main__":
    sys.exit(main())
