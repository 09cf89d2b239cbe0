"""Seconds from a process's start to its first vector, label or translation, ours with a cold and a warm cache.

The time includes the start of the interpreter, imports, and loading the model. With a cold cache, no compiled program
is kept from an earlier process. No process has jaxnlp's settings of malloc, since a program of one's own has none.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks import answers
from benchmarks.case import OURS, Case

STARTS = 3


def cases() -> list[Case]:
    return [
        answers.case("first_answer", "vector", answers.SHORT, answers.our_vector, answers.their_vector),
        answers.case("first_answer", "label", answers.SHORT, answers.our_label, answers.their_label),
        answers.case("first_answer", "translation", answers.SOURCE, answers.our_translation, answers.their_translation),
    ]


def rows() -> Iterator[dict[str, Any]]:
    """A row for a cold cache and one for a warm cache, of each case; the implementations start in alternation."""
    # Imported here, since a started process imports this module, and must not spend time on it.
    from benchmarks.measure import ImplementationError, Worker, compared, not_measured

    def start(number: int, implementation: str, **environ: str) -> float:
        worker = Worker("first_answer", implementation, number=number, huge_pages=False, environ=environ)
        try:
            return worker.wait_until_ready()
        finally:
            worker.close()

    with tempfile.TemporaryDirectory() as folder:
        answers.write_models(Path(folder))
        models = {answers.FOLDER: folder}
        for number, case in enumerate(cases()):
            ours: dict[str, list[float]] = {"cold": [], "warm": []}
            theirs: list[float] = []
            failure = None
            for _ in range(STARTS):
                with tempfile.TemporaryDirectory() as cache:
                    for seconds in ours.values():
                        seconds.append(start(number, OURS, JAX_COMPILATION_CACHE_DIR=cache, **models))
                try:
                    theirs.append(start(number, answers.OPPONENT, **models))
                except ImplementationError as error:
                    failure = error
                    break
            for name, seconds in ours.items():
                row = {"case": case.name, "variant": f"{case.variant}, {name}", "opponent": answers.OPPONENT}
                yield row | (compared(seconds, theirs) if failure is None else not_measured(failure))
