"""When `train.loop` logs."""

import pytest

from train import loop
from train.parallel import MeshParallel


@pytest.mark.thorough
def test_logging_waits_for_no_step_before_the_next_one_is_under_way(tiny_config, tmp_path, quick_fit, monkeypatch):
    dispatched, logged = [0], []
    compile_train, log = MeshParallel.compile_train, loop._log

    def counted(layout, step, state):
        program = compile_train(layout, step, state)

        def call(*arguments):
            dispatched[0] += 1
            return program(*arguments)

        call.lower = program.lower
        return call

    def recorded(writer, step, *rest):
        logged.append((step, dispatched[0]))
        log(writer, step, *rest)

    monkeypatch.setattr(MeshParallel, "compile_train", counted)
    monkeypatch.setattr(loop, "_log", recorded)
    quick_fit(tiny_config(total_steps=6, log_every_steps=2, evaluate_every_steps=6, checkpoint_every_steps=6), tmp_path)
    assert logged == [(2, 3), (4, 5), (6, 6)]
