import errno

import jax
import numpy as np
import pytest

from train.run import process_agreement
from train.run.folder import RunMismatchError
from train.run.process_agreement import require_agreement, require_shared_folder

FACTS = {"--parallel": "fsdp", "data": {"path": "a.txt", "batch_size": 4}, "seed": 0}


def digests(facts):
    return [process_agreement._digest(value) for value in facts.values()]


def with_processes(monkeypatch, others):
    """This is process 0; the others have these facts."""
    monkeypatch.setattr(jax, "process_count", lambda: 1 + len(others))
    rows = [digests(facts) for facts in others]
    gathered = lambda mine: np.array([mine, *rows], np.uint32)  # noqa: E731
    monkeypatch.setattr("jax.experimental.multihost_utils.process_allgather", gathered)


def test_processes_with_the_same_facts_train(monkeypatch):
    with_processes(monkeypatch, [FACTS, {**FACTS, "data": {"batch_size": 4, "path": "a.txt"}}])
    require_agreement(FACTS)


@pytest.mark.parametrize("name", FACTS)
def test_a_process_with_another_fact_is_named_with_it(name, monkeypatch):
    with_processes(monkeypatch, [FACTS, FACTS | {name: "another"}])
    with pytest.raises(RunMismatchError, match=f"^process 2 has another {name} than process 0; start all"):
        require_agreement(FACTS)


def shared(monkeypatch, writes):
    """This is process 0 of two; the other one does `writes(file)` when it writes its file."""
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    monkeypatch.setattr(process_agreement, "of_process_0", lambda numbers: [7])
    monkeypatch.setattr(process_agreement, "wait_for_all", lambda what: None)

    def by_all(act, *refusals):
        if OSError in refusals:
            writes()
        return act()

    monkeypatch.setattr(process_agreement, "by_all", by_all)


def test_a_folder_that_all_processes_share_is_left_as_it_was(tmp_path, monkeypatch):
    other = tmp_path / ".process-1-7"
    shared(monkeypatch, other.touch)
    require_shared_folder(tmp_path)
    assert [*tmp_path.iterdir()] == [other]  # which the other process removes


def test_a_folder_that_a_process_does_not_share_is_refused_with_both(tmp_path, monkeypatch):
    shared(monkeypatch, lambda: None)
    with pytest.raises(RunMismatchError, match=r": process 0 does not see what process 1 writes there; give a"):
        require_shared_folder(tmp_path)
    assert not [*tmp_path.iterdir()]


def test_a_folder_that_a_process_cannot_write_to_is_refused(tmp_path, monkeypatch):
    def refuse():
        raise OSError(errno.EROFS, "Read-only file system", str(tmp_path))

    shared(monkeypatch, refuse)
    with pytest.raises(OSError, match="Read-only"):
        require_shared_folder(tmp_path)
    assert not [*tmp_path.iterdir()]


def test_a_folder_that_is_not_there_is_refused(tmp_path, monkeypatch):
    shared(monkeypatch, lambda: None)
    with pytest.raises(RunMismatchError, match=r"missing: process 0 does not see this folder; give a --workdir"):
        require_shared_folder(tmp_path / "missing")


def test_one_process_agrees_with_itself_and_writes_nothing(tmp_path):
    require_agreement({"seed": object()})
    require_shared_folder(tmp_path / "missing")
