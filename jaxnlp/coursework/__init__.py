"""Functions of course assignments, by trained runs: one file an assignment, with its names.

They only convert arguments and results; docs/coursework.md names the library's functions that do the work.
"""

from typing import Any

from jaxnlp.tasks import Task, Trained


def require_run(run: Any, task: type[Task], recipe: str) -> Trained:
    """The run itself. Args: task: the task it must have; recipe: one that trains such runs, for the message.

    Raises: ValueError for any other run or object.
    """
    if isinstance(run, Trained) and isinstance(run.task, task):
        return run
    got = f"{run.name or 'a run'} of the task {type(run.task).__name__}" if isinstance(run, Trained) else repr(run)
    raise ValueError(
        f"expected a run of the task {task.__name__}, such as jaxnlp.load_run(FOLDER) of the recipe {recipe}, got "
        f"{got:.80}"
    )
