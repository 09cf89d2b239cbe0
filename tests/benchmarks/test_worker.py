"""The process of an implementation."""

import io
import sys
import types

import pytest

from benchmarks import worker
from benchmarks.case import OURS, Case


@pytest.mark.parametrize(("arguments", "expected"), [([], "first"), (["1"], "second")])
def test_a_process_begins_with_the_variant_of_its_number(monkeypatch, capsys, arguments, expected):
    prepared = []

    def case(name):
        return Case("fake", {OURS: lambda: prepared.append(name) or (lambda: None)}, name)

    fake = types.SimpleNamespace(cases=lambda: [case("first"), case("second")])
    monkeypatch.setitem(sys.modules, "benchmarks.fake", fake)
    monkeypatch.setattr(sys, "argv", ["worker", "fake", OURS, *arguments])
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    worker.main()
    assert prepared == [expected]
    assert capsys.readouterr().out == "ready 0.0\n"
