import json
import pickle
import random
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.faults.fuzz import Fuzzer, Watch, limits
from tests.faults.mutations import mutated
from tests.faults.readers import Reader, folder_readers, plain_readers

READERS = plain_readers()


@pytest.fixture(scope="module")
def watch(tmp_path_factory):
    """The audit hook, which cannot be removed: one is enough."""
    return Watch(tmp_path_factory.getbasetemp(), Path(tempfile.gettempdir()))


def finds(reader, folder, watch, inputs):
    """What the fuzzer finds in some inputs; at least one of the valid files is read."""
    with limits(memory=None):
        fuzzer = Fuzzer(reader, folder, watch, seed=0)
        assert fuzzer.counts["read"]
        fuzzer.run(inputs=inputs)
    assert fuzzer.counts["refused"]
    return [text for text, _ in fuzzer.finds.values()]


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.name)
def test_a_changed_file_is_read_or_refused_by_an_error_that_names_it(reader, tmp_path, watch):
    assert not finds(reader, tmp_path, watch, 100)


@pytest.mark.thorough
@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.name)
def test_many_changed_files_are_read_or_refused(reader, tmp_path, watch):
    assert not finds(reader, tmp_path, watch, 2_000)


@pytest.mark.thorough
def test_changed_files_of_transformers_are_read_or_refused(tmp_path, watch, capfd):
    found = {reader.name: finds(reader, tmp_path, watch, 150) for reader in folder_readers(tmp_path)}
    assert not {name: texts for name, texts in found.items() if texts}
    capfd.readouterr()  # the tokenizers library prints names that it ignores


@pytest.mark.thorough
@pytest.mark.skipif(sys.platform != "linux", reason="atheris is for Linux")
def test_coverage_guides_the_fuzzer(tmp_path):
    command = [sys.executable, "-m", "tests.faults.coverage", "--seconds", "1", "--kinds", "plain"]
    command += ["--match", "^(csv|squad)$", "--json", str(tmp_path / "counts.json")]
    subprocess.run(command, check=True, capture_output=True)
    rows = json.loads((tmp_path / "counts.json").read_text())
    assert sorted(row["reader"] for row in rows) == ["csv", "squad"]
    assert all(row["read"] and row["refused"] and not row["finds"] for row in rows)  # however busy the machine is


def executing(path):
    """A reader that runs what is in a file."""
    with path.open("rb") as file:
        pickle.load(file)


def elsewhere(path):
    """A reader that writes in another folder."""
    Path.home().joinpath(".jaxnlp-fuzz").write_text("")


@pytest.mark.parametrize(
    ("read", "message"),
    [
        (executing, r"pickle.find_class"),
        (elsewhere, r"\.jaxnlp-fuzz' for writing"),
        (lambda path: subprocess.run(["true"], check=True), "subprocess.Popen"),
        (lambda path: {}[path], "KeyError"),
        (lambda path: int("x"), "ValueError: invalid literal"),
        (lambda path: [None for _ in iter(int, 1)], r"more than 0\.1 s"),
    ],
)
def test_the_fuzzer_finds_faults(read, message, tmp_path, watch, monkeypatch):
    monkeypatch.setattr(Path, "home", lambda: tmp_path.parent)
    own = Watch(tmp_path) if read is elsewhere else watch
    reader = Reader("bad", "a.bin", [pickle.dumps(print)], read, seconds=0.1)
    with limits(memory=None):
        fuzzer = Fuzzer(reader, tmp_path, own, seed=0)
    (text, _), *_ = fuzzer.finds.values()
    assert re.search(message, text)


def test_changes_depend_on_the_seed_alone_and_change_something():
    seeds = [content for reader in READERS for content in reader.seeds]
    first, second = ([mutated(seed, seeds, random.Random(number)) for seed in seeds] for number in (0, 0))
    assert first == second
    assert sum(one != seed for one, seed in zip(first, seeds, strict=True)) > 0.9 * len(seeds)
