"""The measurement of first answers."""

from pathlib import Path

import pytest

from benchmarks import answers, first_answer
from benchmarks.case import OURS
from benchmarks.measure import NUMBERS, ImplementationError

VARIANTS = [f"{answer}, {cache}" for answer in ("vector", "label", "translation") for cache in ("cold", "warm")]


class Starts:
    """Workers that start in 4 seconds with an empty cache, which they fill, and otherwise in 2; opponents in 8."""

    def __init__(self, monkeypatch, failing=None):
        self.started, self.failing = [], failing
        monkeypatch.setattr("benchmarks.measure.Worker", self.worker)
        monkeypatch.setattr(answers, "WRITERS", {"model": lambda folder: folder.mkdir()})

    def worker(self, module, implementation, *, number, huge_pages, environ):
        assert (module, huge_pages) == ("first_answer", False)
        assert (Path(environ[answers.FOLDER]) / "model").is_dir()
        self.implementation, self.number, self.environ = implementation, number, environ
        self.started.append((number, implementation))
        return self

    def wait_until_ready(self):
        if self.implementation != OURS:
            if self.number == self.failing:
                raise ImplementationError(answers.OPPONENT, "no tokenizer")
            return 8.0
        cache = Path(self.environ["JAX_COMPILATION_CACHE_DIR"])
        warm = any(cache.iterdir())
        (cache / "program").touch()
        return 2.0 if warm else 4.0

    def close(self):
        pass


def test_each_answer_has_a_row_for_a_cold_and_one_for_a_warm_cache(monkeypatch):
    starts = Starts(monkeypatch)
    found = list(first_answer.rows())
    assert [row["variant"] for row in found] == VARIANTS
    assert [row["ours_seconds"] for row in found] == [4.0, 2.0] * 3
    assert [row["ratio"] for row in found] == [2.0, 4.0] * 3
    a_round = [OURS, OURS, answers.OPPONENT]
    assert starts.started == [(number, name) for number in range(3) for name in a_round * first_answer.STARTS]


@pytest.mark.parametrize("failing", [0, 2])
def test_an_answer_without_an_opponent_has_its_reason(monkeypatch, failing):
    Starts(monkeypatch, failing)
    found = list(first_answer.rows())
    assert [row["variant"] for row in found] == VARIANTS
    for place, row in enumerate(found):
        if place // 2 == failing:
            assert row["error"] == "no tokenizer"
            assert {row[name] for name in NUMBERS} == {None}
        else:
            assert row["theirs_seconds"] == 8.0
