"""The programs started here are tiny; one is `python -m train --help`, as people start it."""

import importlib.util
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

import pytest

from jaxnlp.cli.checkout import MODULES
from train.cli.launcher import (
    KEEP,
    STARTED,
    SWITCH,
    TRANSPARENT_HUGE_PAGES,
    TUNABLES,
    start,
    start_time,
    tunables_for,
    use_huge_pages,
)

HUGE_PAGES = "always [madvise] never\n"
LONGEST_WAIT_SECONDS = 60
GLIBC = ("glibc", "2.35")

try:
    HERE = TRANSPARENT_HUGE_PAGES.read_text()
except OSError:
    HERE = ""
can_have_huge_pages = pytest.mark.skipif(
    tunables_for({}, platform.libc_ver(), HERE) != TUNABLES, reason="needs glibc 2.35, and a kernel with huge pages"
)

PROGRAM = """\
import json, os, sys, time
print("started", flush=True)
from train.cli.launcher import start_time, use_huge_pages
started = start_time(time.time())
use_huge_pages(started)
print(json.dumps({
    "tunables": os.environ.get("GLIBC_TUNABLES"),
    "left": sorted(name for name in os.environ if name.startswith("JAXNLP_")),
    "started": started,
    "pid": os.getpid(),
    "arguments": sys.argv,
    "flags": [sys.flags.dev_mode, sys.flags.dont_write_bytecode],
    "inherited": os.environ["INHERITED"],
    "input": sys.stdin.read(),
}))
sys.exit(int(sys.argv[1]))
"""


@pytest.fixture
def run(root, tmp_path):
    """Runs PROGRAM: its exit status, how often it started, what it found out, and its id as its parent knows it."""
    script = tmp_path / "a program.py"
    script.write_text(PROGRAM)

    def run(*arguments, **environment):
        ours = ("GLIBC_TUNABLES", "JAXNLP_")
        inherited = {name: x for name, x in os.environ.items() if not name.startswith(ours)}
        process = subprocess.Popen(
            [sys.executable, "-X", "dev", "-B", str(script), *arguments],
            env=inherited | {"PYTHONPATH": str(root), "INHERITED": "kept"} | environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        output, errors = process.communicate("typed", timeout=LONGEST_WAIT_SECONDS)
        assert errors == ""
        *starts, found = output.splitlines()
        assert set(starts) == {"started"}
        return process.returncode, len(starts), json.loads(found), process.pid

    return run


@pytest.mark.parametrize("huge_pages", [HUGE_PAGES, "[always] madvise never\n"])
@pytest.mark.parametrize("environ", [{}, {SWITCH: "1"}, {SWITCH: ""}, {"PATH": "/bin", STARTED: "5.0"}], ids=str)
def test_tunables_are_set_where_huge_pages_can_be_had(environ, huge_pages):
    assert tunables_for(environ, GLIBC, huge_pages) == TUNABLES


@pytest.mark.parametrize(
    ("environ", "libc", "huge_pages"),
    [
        ({SWITCH: "0"}, GLIBC, HUGE_PAGES),
        ({"GLIBC_TUNABLES": "glibc.malloc.check=1"}, GLIBC, HUGE_PAGES),
        ({"GLIBC_TUNABLES": ""}, GLIBC, HUGE_PAGES),
        ({"GLIBC_TUNABLES": TUNABLES}, GLIBC, HUGE_PAGES),
        ({}, ("", ""), HUGE_PAGES),
        ({}, ("musl", "9.9"), HUGE_PAGES),
        ({}, ("glibc", "2.34"), HUGE_PAGES),
        ({}, ("glibc", "2.9"), HUGE_PAGES),
        ({}, ("glibc", ""), HUGE_PAGES),
    ],
    ids=["switched_off", "own", "own_and_empty", "has_them", "no_libc", "other_libc", "old", "very_old", "no_version"],
)
def test_process_stays_unchanged(environ, libc, huge_pages):
    assert tunables_for(environ, libc, huge_pages) is None


@pytest.mark.parametrize("huge_pages", ["always madvise [never]\n", ""])
def test_without_huge_pages_malloc_keeps_its_memory_all_the_same(huge_pages):
    assert tunables_for({}, GLIBC, huge_pages) == KEEP
    assert "hugetlb" not in KEEP


def test_asking_changes_no_environment(monkeypatch):
    monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
    before = dict(os.environ)
    tunables_for(os.environ, GLIBC, HUGE_PAGES)
    assert dict(os.environ) == before


def test_tunables_are_known_settings_of_glibc_in_its_format():
    settings = dict(setting.split("=") for setting in TUNABLES.split(":"))
    names = ("hugetlb", "mmap_threshold", "trim_threshold", "arena_max", "top_pad")
    assert settings.keys() == {f"glibc.malloc.{name}" for name in names}
    assert settings["glibc.malloc.hugetlb"] == settings["glibc.malloc.arena_max"] == "1"
    assert all(int(value) > 0 for value in settings.values())


def test_start_time_is_now_in_a_program_that_was_started_once(monkeypatch):
    monkeypatch.delenv(STARTED, raising=False)
    assert start_time(12.5) == 12.5


def test_start_time_is_that_of_the_first_start_and_forgotten_once_read(monkeypatch):
    monkeypatch.setenv(STARTED, str(1763728209.1234567))
    assert start_time(12.5) == 1763728209.1234567
    assert STARTED not in os.environ
    assert start_time(12.5) == 12.5


def test_nothing_is_started_on_another_c_library(monkeypatch, tmp_path):
    def started(*arguments):
        raise AssertionError(f"started {arguments}")

    monkeypatch.setattr("os.execve", started)
    monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
    monkeypatch.delenv(SWITCH, raising=False)
    monkeypatch.setattr("train.cli.launcher.TRANSPARENT_HUGE_PAGES", tmp_path / "missing")
    monkeypatch.setattr("platform.libc_ver", lambda: ("musl", "1.2"))
    use_huge_pages(0.0)
    (tmp_path / "madvise").write_text(HUGE_PAGES)
    monkeypatch.setattr("train.cli.launcher.TRANSPARENT_HUGE_PAGES", tmp_path / "madvise")
    monkeypatch.setattr("platform.libc_ver", lambda: ("glibc", "2.36"))
    with pytest.raises(AssertionError, match="started"):
        use_huge_pages(0.0)


@pytest.mark.parametrize("module", [*MODULES.values()])
def test_every_program_starts_before_the_imports_that_would_set_the_format_of_its_messages(module):
    source = Path(importlib.util.find_spec(module).origin)
    if source.name == "__init__.py":
        source = source.with_name("__main__.py")
    before, _, _ = source.read_text().partition(f'start("{module}", started=')
    imported = {line.split()[1] for line in before.splitlines() if line.startswith(("import ", "from "))}
    assert imported == {"sys", "time", "train.cli.launcher"}


def test_a_program_shows_plain_warnings_from_its_start_on(monkeypatch):
    called = []
    monkeypatch.setattr("train.cli.launcher.show_plain_warnings", lambda: called.append("warnings"))
    monkeypatch.setattr("train.cli.launcher.say_that_jax_loads", lambda *_: called.append("first line"))
    start("train.compare", started=0.0, huge_pages=False)
    assert called == ["warnings", "first line"]


@can_have_huge_pages
@pytest.mark.parametrize("status", [0, 3])
def test_program_is_started_once_more_and_stays_the_same_process(run, status):
    before = time.time()
    arguments = [str(status), "--a b", "", "ü*$x", "--"]
    returned, starts, found, pid = run(*arguments)
    assert returned == status
    assert starts == 2
    assert found["tunables"] == TUNABLES
    assert found["pid"] == pid
    assert found["arguments"][0].endswith("a program.py")
    assert found["arguments"][1:] == arguments
    assert found["flags"] == [True, 1]
    assert found["inherited"] == "kept"
    assert found["input"] == "typed"
    assert found["left"] == []
    assert before <= found["started"] <= time.time()


@can_have_huge_pages
def test_start_time_is_that_of_the_first_of_two_starts(run):
    _, starts, found, _ = run("0", **{STARTED: "1234.5"})
    assert (starts, found["started"], found["left"]) == (2, 1234.5, [])


@pytest.mark.parametrize(
    ("environment", "tunables"),
    [
        ({SWITCH: "0"}, None),
        ({"GLIBC_TUNABLES": "glibc.malloc.check=0"}, "glibc.malloc.check=0"),
        ({"GLIBC_TUNABLES": ""}, ""),
    ],
    ids=["switched_off", "own", "own_and_empty"],
)
def test_unchanged_program_is_started_once(run, environment, tunables):
    status, starts, found, _ = run("3", **environment)
    assert (status, starts, found["tunables"]) == (3, 1, tunables)
    assert found["left"] == [name for name in environment if name == SWITCH]


@can_have_huge_pages
def test_programs_that_a_program_starts_are_not_started_twice(run):
    _, _, found, _ = run("0")
    _, starts, again, _ = run("0", GLIBC_TUNABLES=found["tunables"])
    assert (starts, again["tunables"]) == (1, TUNABLES)


@pytest.mark.sweep(1)
@can_have_huge_pages
@pytest.mark.parametrize(("arguments", "status"), [(["--help"], 0), (["no_such_recipe"], 2)])
def test_train_says_the_same_with_huge_pages_and_without(root, tmp_path, arguments, status):
    # Python runs this file as soon as it starts.
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys\n"
        f"with open({str(tmp_path / 'starts')!r}, 'a') as file:\n"
        "    print(os.getpid(), os.environ.get('GLIBC_TUNABLES'), sys.orig_argv[1:], file=file)\n"
    )
    inherited = {name: x for name, x in os.environ.items() if name != "GLIBC_TUNABLES"}
    said = []
    for switch in ("1", "0"):
        process = subprocess.run(
            [sys.executable, "-m", "train", *arguments],
            cwd=root,
            env=inherited | {"PYTHONPATH": str(tmp_path), SWITCH: switch},
            capture_output=True,
            text=True,
            timeout=LONGEST_WAIT_SECONDS,
        )
        said.append((process.returncode, process.stdout, process.stderr))
    assert said[0] == said[1]
    assert said[0][0] == status
    assert "".join(said[0][1:]) != ""
    first, second, alone = (tmp_path / "starts").read_text().splitlines()
    typed = str(["-m", "train", *arguments])
    pid = first.split()[0]
    assert [first, second] == [f"{pid} {tunables} {typed}" for tunables in (None, TUNABLES)]
    assert alone.split(maxsplit=1)[1] == f"None {typed}"
