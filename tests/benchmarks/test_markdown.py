"""The table of docs/benchmarks.md."""

from benchmarks.markdown import BEGIN, END, PAGE, markdown, recorded, with_table
from benchmarks.measure import compared

WHERE = {"device": "a machine", "date": "2026-01-02", "versions": "jax 1"}

ROW = {"case": "a", "variant": "", "opponent": "eager_f32"}


def test_every_row_is_in_the_table_with_its_numbers():
    rows = [
        ROW | compared([0.5, 0.5], [1.0, 1.0], tokens=1000, flop=1e9, limit_gflops=4.0) | WHERE,
        ROW | {"case": "b", "variant": "long", "opponent": "compile", "error": "no compiler"} | WHERE,
    ]
    text = markdown(rows)
    assert "| a | `eager_f32` | 500 | 1e+03 | 2.00 | 0% | 2,000 | 2 | 0.50 |" in text
    assert "| b, long | `compile` |  |  | not measured: no compiler |  |  |  |  |" in text
    assert "a machine, 2026-01-02, with jax 1.\n" in text
    assert "with jax 1, at commit 0123456789ab.\n" in markdown([rows[0] | {"commit": "0123456789abcdef"}])


def test_a_cold_start_is_next_to_the_warm_one():
    row = ROW | compared([0.5, 0.5], [1.0, 1.0]) | {"ours_cold_seconds": 2.0} | WHERE
    assert "| a | `eager_f32` | 500; cold 2e+03 | 1e+03 | 2.00 |" in markdown([row])


def test_only_text_between_the_markers_is_replaced():
    page = f"before\n{BEGIN}\nold\n{END}\nafter\n"
    assert with_table(page, "new\n") == f"before\n{BEGIN}\nnew\n{END}\nafter\n"


def test_the_page_holds_the_table_of_the_recorded_rows():
    page = PAGE.read_text()
    assert recorded().count("Measured on") >= 1
    assert page == with_table(page, recorded())
