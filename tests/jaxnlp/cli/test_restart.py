"""The programs started here are tiny; one is `jaxnlp train --help`, as people start it."""

import json
import os
import platform
import subprocess
import sys

import pytest

from jaxnlp.cli.restart import KEEP, SWITCH, TRANSPARENT_HUGE_PAGES, TUNABLES, restart, tunables_for

HUGE_PAGES = "always [madvise] never\n"
GLIBC = ("glibc", "2.35")
HERE = TRANSPARENT_HUGE_PAGES.read_text() if TRANSPARENT_HUGE_PAGES.is_file() else ""
can_have_huge_pages = pytest.mark.skipif(
    tunables_for({}, platform.libc_ver(), HERE) != TUNABLES, reason="needs glibc 2.35, and a kernel with huge pages"
)

PROGRAM = """\
import json, os, sys
print("started", flush=True)
from jaxnlp.cli.restart import restart
restart(huge_pages=True)
print(json.dumps({
    "tunables": os.environ.get("GLIBC_TUNABLES"),
    "pid": os.getpid(),
    "arguments": sys.argv[1:],
    "flags": [sys.flags.dev_mode, sys.flags.dont_write_bytecode],
    "input": sys.stdin.read(),
}))
sys.exit(int(sys.argv[1]))
"""


def run(root, program, *arguments, **environment):
    """What a program prints, line by line, after its exit status and its id."""
    inherited = {name: x for name, x in os.environ.items() if name not in ("GLIBC_TUNABLES", SWITCH)}
    process = subprocess.Popen(
        [sys.executable, "-X", "dev", "-B", *program, *arguments],
        env=inherited | {"PYTHONPATH": str(root)} | environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    output, _ = process.communicate("typed", timeout=60)
    return process.returncode, process.pid, output.splitlines()


@pytest.mark.parametrize(
    ("environ", "libc", "huge_pages", "tunables"),
    [
        ({}, GLIBC, HUGE_PAGES, TUNABLES),
        ({SWITCH: "1"}, GLIBC, "[always] madvise never\n", TUNABLES),
        ({}, GLIBC, "always madvise [never]\n", KEEP),
        ({}, GLIBC, "", KEEP),
        ({SWITCH: "0"}, GLIBC, HUGE_PAGES, None),
        ({"GLIBC_TUNABLES": "glibc.malloc.check=1"}, GLIBC, HUGE_PAGES, None),
        ({"GLIBC_TUNABLES": ""}, GLIBC, HUGE_PAGES, None),
        ({}, ("", ""), HUGE_PAGES, None),
        ({}, ("musl", "9.9"), HUGE_PAGES, None),
        ({}, ("glibc", "2.34"), HUGE_PAGES, None),
        ({}, ("glibc", "2.9"), HUGE_PAGES, None),
        ({}, ("glibc", ""), HUGE_PAGES, None),
    ],
    ids=str,
)
def test_tunables_are_set_where_glibc_knows_them_and_the_user_has_set_none(environ, libc, huge_pages, tunables):
    assert tunables_for(environ, libc, huge_pages) == tunables


def test_tunables_are_settings_in_glibcs_format():
    settings = dict(setting.split("=") for setting in TUNABLES.split(":"))
    names = ("hugetlb", "mmap_threshold", "trim_threshold", "arena_max", "top_pad")
    assert settings.keys() == {f"glibc.malloc.{name}" for name in names}
    assert all(int(value) > 0 for value in settings.values())


def test_nothing_is_started_on_another_c_library(monkeypatch):
    started = []
    monkeypatch.setattr("os.execve", lambda *arguments: started.append(arguments))
    monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
    monkeypatch.delenv(SWITCH, raising=False)
    for libc, count in ((("musl", "1.2"), 0), (("glibc", "2.36"), 1)):
        monkeypatch.setattr("platform.libc_ver", lambda libc=libc: libc)
        restart(huge_pages=True)
        assert len(started) == count


@can_have_huge_pages
@pytest.mark.parametrize("status", [0, 3])
def test_program_is_started_once_more_and_stays_the_same_process(root, tmp_path, status):
    script = tmp_path / "a program.py"
    script.write_text(PROGRAM)
    arguments = [str(status), "--a b", "", "ü*$x", "--"]
    returned, pid, (*starts, last) = run(root, [str(script)], *arguments)
    found = {"tunables": TUNABLES, "pid": pid, "arguments": arguments, "flags": [True, 1], "input": "typed"}
    assert (returned, starts, json.loads(last)) == (status, ["started"] * 2, found)


@can_have_huge_pages
@pytest.mark.parametrize("environment", [{SWITCH: "0"}, {"GLIBC_TUNABLES": ""}, {"GLIBC_TUNABLES": TUNABLES}], ids=str)
def test_a_program_with_settings_of_its_own_is_started_once(root, tmp_path, environment):
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    _, _, (*starts, last) = run(root, [str(script)], "0", **environment)
    assert (starts, json.loads(last)["tunables"]) == (["started"], environment.get("GLIBC_TUNABLES"))


@pytest.mark.thorough
@can_have_huge_pages
@pytest.mark.parametrize(("verb", "tunables"), [("train", [None, TUNABLES]), ("help", [None])])
def test_programs_for_training_have_huge_pages_and_others_are_started_once(root, tmp_path, verb, tunables):
    (tmp_path / "sitecustomize.py").write_text(  # Python runs this file as soon as it starts
        f"import os\nwith open({str(tmp_path / 'starts')!r}, 'a') as file:\n"
        "    print(os.environ.get('GLIBC_TUNABLES'), file=file)\n"
    )
    status, _, lines = run(root, ["-m", "jaxnlp"], verb, "--help", PYTHONPATH=f"{root}{os.pathsep}{tmp_path}")
    assert status == 0
    assert lines[0].startswith("usage: ")
    assert (tmp_path / "starts").read_text().splitlines() == [*map(str, tunables)]


@pytest.mark.thorough
@pytest.mark.parametrize("words", [["train", "--list"], ["train", "é☃"]], ids="-".join)
def test_commands_read_and_write_utf_8_where_the_locale_is_ascii(root, words):
    environ = os.environ | {"LC_ALL": "C", "PYTHONUTF8": "0"}
    command = [sys.executable, "-m", "jaxnlp", *words]
    done = subprocess.run(command, env=environ, cwd=root, capture_output=True, encoding="utf-8", check=False)
    expected = words[-1] if words[-1] != "--list" else "é"
    assert expected in done.stdout + done.stderr
    assert "codec" not in done.stderr
