"""Trained runs behind the functions of course assignments: one file an assignment, with the assignment's names.

A course's grader calls these functions. They only convert arguments and results; docs/coursework.md says where the
functions of the library are that do the work.
"""

from typing import Any

from jaxnlp.tasks import Task, Trained


def require_run(run: Any, task: type[Task], recipe: str) -> Trained:
    """The run itself. Args: task: the task that it must have; recipe: one that trains such runs, for the message.

    Raises: ValueError for a run of another task, and for what is no run.
    """
    if isinstance(run, Trained) and isinstance(run.task, task):
        return run
    got = f"{run.name or 'a run'} of the task {type(run.task).__name__}" if isinstance(run, Trained) else repr(run)
    raise ValueError(
        f"expected a run of the task {task.__name__}, such as jaxnlp.load_run(FOLDER) of the recipe {recipe}, got "
        f"{got:.80}"
    )
