import threading
import time

import jax
import pytest
from jax._src import distributed

from train.run import watch
from train.run.watch import ENDED, SECONDS_UNTIL_A_LINE, Silences, watching

LONG = SECONDS_UNTIL_A_LINE + 1


def signs(number, *processes):
    return {one: f"{number} (host{one}, pid {one})" for one in processes}


def test_a_process_whose_sign_does_not_change_is_named_once():
    silences = Silences(3, 0.0)
    silences.heard(signs(1, 0, 1, 2), 1.0)
    silences.heard(signs(2, 0, 2) | signs(1, 1), LONG)
    assert silences.lines(LONG) == []
    silences.heard(signs(3, 0, 2) | signs(1, 1), LONG + 1)
    (line,) = silences.lines(LONG + 1)
    assert line.startswith(f"process 1 (host1, pid 1) has given no sign of life for {LONG:.0f} s")
    assert silences.lines(LONG + 1) == []


def test_a_process_that_was_silent_may_be_named_again():
    silences = Silences(2, 0.0)
    silences.heard(signs(1, 0, 1), 0.0)
    silences.heard(signs(2, 0) | signs(1, 1), LONG)
    assert len(silences.lines(LONG)) == 1
    silences.heard(signs(3, 0, 1), LONG + 1)
    assert silences.lines(LONG + 1) == []
    silences.heard(signs(4, 0) | signs(3, 1), 3 * LONG)
    assert len(silences.lines(3 * LONG)) == 1


def test_a_process_that_never_gave_a_sign_is_named_by_its_number():
    silences = Silences(2, 0.0)
    silences.heard(signs(1, 0), 1.0)
    silences.heard(signs(2, 0), LONG)
    (line,) = silences.lines(LONG)
    assert line.startswith(f"process 1 has given no sign of life for {LONG:.0f} s")


def test_a_process_that_ended_with_an_error_is_named_at_once_with_it():
    silences = Silences(2, 0.0)
    silences.heard(signs(1, 0) | {1: f"4 (host1, pid 1) {ENDED}no space left"}, 1.0)
    assert silences.lines(1.0) == ["process 1 (host1, pid 1) ended with an error: no space left"]
    assert silences.lines(2.0) == []


@pytest.fixture
def client(monkeypatch):
    """Stands where JAX has its client of process 0."""

    class Client:
        def __init__(self):
            self.kept = {}
            self.error = None

        def key_value_set(self, key, value, *, allow_overwrite):
            assert allow_overwrite
            if self.error:
                raise self.error
            self.kept[key] = value

        def key_value_dir_get(self, folder):
            return [(key, value) for key, value in self.kept.items() if key.startswith(folder)]

    jax.devices()  # JAX would ask the client for them
    client = Client()
    monkeypatch.setattr(distributed.global_state, "client", client)
    monkeypatch.setattr(watch, "SECONDS_BETWEEN_SIGNS", 0.01)
    return client


def printed(capsys, part):
    """What is printed until it has this part, on a busy machine after many seconds."""
    found, end = "", time.monotonic() + 30
    while time.monotonic() < end and part not in found:
        time.sleep(0.02)
        found += capsys.readouterr().err
    assert part in found
    return found


def test_the_watch_gives_signs_names_the_silent_and_ends_with_its_context(client, monkeypatch, capsys):
    monkeypatch.setattr(watch, "SECONDS_UNTIL_A_LINE", 0.2)
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    client.kept["jaxnlp/signs_of_life/1"] = "7 (other, pid 3)"
    before = threading.active_count()
    with watching():
        found = printed(capsys, "process 1 (other, pid 3) has given no sign of life")
        assert int(client.kept["jaxnlp/signs_of_life/0"].split()[0]) > 2
        assert client.kept["jaxnlp/lines/all"].splitlines()[0] in found
    end = time.monotonic() + 30
    while threading.active_count() > before and time.monotonic() < end:
        time.sleep(0.01)
    assert threading.active_count() == before


def test_a_first_process_that_is_gone_is_named_at_once(client, capsys):
    client.error = jax.errors.JaxRuntimeError("Socket closed")
    with watching():
        assert printed(capsys, "\n") == "process 0 does not answer: Socket closed\n"


def test_other_processes_print_what_process_0_writes_and_watch_it(client, monkeypatch, capsys):
    monkeypatch.setattr(jax, "process_index", lambda: 1)
    client.kept["jaxnlp/lines/all"] = "process 2 is silent"
    answers, read = threading.Event(), client.key_value_dir_get
    with watching():
        assert printed(capsys, "\n") == "process 2 is silent\n"
        client.key_value_dir_get = lambda folder: [answers.wait(60), *read(folder)][1:]
        monkeypatch.setattr(watch, "SECONDS_UNTIL_A_LINE", 0.2)
        assert printed(capsys, "\n").startswith("process 0 has given no sign of life for")
        answers.set()


def test_an_error_is_told_to_the_others(client, monkeypatch):
    monkeypatch.setattr(threading.Thread, "start", lambda thread: None)  # it would watch until this process ends
    with pytest.raises(ValueError, match="no such file"), watching():
        raise ValueError("no such file\nand more")
    assert client.kept["jaxnlp/signs_of_life/0"].endswith(f"{ENDED}no such file and more")
