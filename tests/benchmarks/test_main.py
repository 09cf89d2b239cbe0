"""`python -m benchmarks`."""

import sys

import pytest
from rich.console import Console

from benchmarks.__main__ import MODULES, cases_of, main, summary, table
from benchmarks.case import OURS
from benchmarks.measure import compared


@pytest.mark.parametrize("module", MODULES)
def test_every_case_has_our_side_and_rivals(module):
    cases = cases_of(module)
    assert len({case.variant for case in cases}) == len(cases) > 0
    for case in cases:
        assert next(iter(case.sides)) == OURS
        assert len(case.sides) > 1
        assert case.sides.keys() == cases[0].sides.keys()
        assert case.flop is None or case.flop > 1e8


def test_unknown_case_is_refused_with_those_there_are(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["benchmarks", "gpt_naems"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    error = capsys.readouterr().err
    assert "gpt_naems" in error
    assert "gpt_names" in error


def test_the_table_shows_numbers_and_what_was_not_measured():
    row = {"case": "a", "variant": "long", "opponent": "eager_f32"}
    rows = [
        row | compared([0.5, 0.5], [1.0, 1.0], flop=1e9, limit_gflops=4.0),
        row | {"opponent": "compile", "error": "no compiler"},
    ]
    console = Console(width=200, record=True)
    console.print(table(rows))
    text = console.export_text()
    assert "2.00" in text
    assert "0.50" in text
    assert "no compiler" in text
    assert summary(rows[0]) == "a, long beside eager_f32: 2.00 times as fast"
    assert "not measured, no compiler" in summary(rows[1])
