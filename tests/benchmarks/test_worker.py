"""The process of an implementation."""

import io
import subprocess
import sys
import types

import pytest

from benchmarks import worker
from benchmarks.case import OURS, Case


@pytest.mark.parametrize(("arguments", "expected"), [([], "first"), (["1"], "second")])
def test_a_process_begins_with_the_variant_of_its_number(monkeypatch, arguments, expected):
    prepared = []

    def case(name):
        return Case("fake", {OURS: lambda: prepared.append(name) or (lambda: None)}, name)

    fake = types.SimpleNamespace(cases=lambda: [case("first"), case("second")])
    monkeypatch.setitem(sys.modules, "benchmarks.fake", fake)
    monkeypatch.setattr(sys, "argv", ["worker", "fake", OURS, *arguments])
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    worker.main(answers := io.StringIO())
    assert prepared == [expected]
    assert answers.getvalue() == "ready 0.0\n"


def test_what_libraries_print_is_no_answer():
    code = """
import os
from benchmarks.worker import own_output
answers = own_output()
print("stray", flush=True)
os.write(1, b"more\\n")
print("answer", file=answers)
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (found.stdout, found.stderr) == ("answer\n", "stray\nmore\n")
