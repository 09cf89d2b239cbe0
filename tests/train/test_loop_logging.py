"""When `train.loop` logs."""

import dataclasses

import pytest

from tests.train.loop_helpers import rows
from train import loop
from train.compile_ahead import AheadCompiler
from train.parallel import MeshParallel
from train.run.progress import NonFiniteError, all_finite


@dataclasses.dataclass
class Watched:
    """What a run has dispatched and logged.

    Attributes:
      dispatched: the steps, counted from 1.
      logged: (step, number of dispatched steps) of each row.
      fails: the step that fails when it is dispatched.
    """

    dispatched: list[int] = dataclasses.field(default_factory=list)
    logged: list[tuple[int, int]] = dataclasses.field(default_factory=list)
    fails: int | None = None


@pytest.fixture
def watched(monkeypatch):
    seen = Watched()
    compile_train, log = MeshParallel.compile_train, loop._log

    def counted(layout, step, state):
        program = compile_train(layout, step, state)

        def call(*arguments):
            seen.dispatched.append(len(seen.dispatched) + 1)
            if seen.dispatched[-1] == seen.fails:
                raise MemoryError
            return program(*arguments)

        call.lower = program.lower
        return call

    def recorded(writer, step, *rest):
        seen.logged.append((step, len(seen.dispatched)))
        log(writer, step, *rest)

    monkeypatch.setattr(MeshParallel, "compile_train", counted)
    monkeypatch.setattr(loop, "_log", recorded)
    return seen


@pytest.fixture
def config(tiny_config):
    return tiny_config(total_steps=6, log_every_steps=2, evaluate_every_steps=6, checkpoint_every_steps=6)


@pytest.mark.thorough
def test_logging_waits_for_no_step_before_the_next_one_is_under_way(config, tmp_path, quick_fit, watched):
    quick_fit(config, tmp_path)
    assert watched.logged == [(2, 3), (4, 5), (6, 6)]


def test_a_row_is_logged_before_a_run_waits_for_the_program_of_its_next_step(
    config, tmp_path, quick_fit, watched, monkeypatch
):
    called, programs = AheadCompiler.called, []

    def waiting(ahead, function, *, before_waiting=lambda: None):
        call = called(ahead, function)
        programs.append(function)

        def wait(*arguments):
            before_waiting()
            return call(*arguments)

        return wait

    monkeypatch.setattr(AheadCompiler, "called", waiting)
    quick_fit(config, tmp_path)
    assert watched.logged == [(2, 2), (4, 4), (6, 6)]
    assert all_finite in programs  # the row needs its result


def test_a_row_is_logged_if_the_next_step_fails(config, tmp_path, quick_fit, watched):
    watched.fails = 5
    with pytest.raises(MemoryError):
        quick_fit(config, tmp_path)
    assert [row["step"] for row in rows(tmp_path)] == [2, 4]


@pytest.mark.thorough
def test_a_loss_that_is_not_finite_is_reported_at_its_step_if_the_next_step_fails(
    tiny_config, tmp_path, quick_fit, watched, poison
):
    config = tiny_config(log_every_steps=1, checkpoint_every_steps=12)
    bad = poison(config)[0]
    watched.fails = bad + 1
    with pytest.raises(NonFiniteError, match=f"not finite at step {bad};"):
        quick_fit(config, tmp_path)
    assert len(watched.dispatched) == bad + 1
