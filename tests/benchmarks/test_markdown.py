"""The table of docs/benchmarks.md."""

from benchmarks.markdown import BEGIN, END, PAGE, RESULTS, TITLES, markdown, recorded, with_table
from benchmarks.measure import compared

WHERE = {"device": "a machine", "date": "2026-01-02", "versions": "jax 1"}

ROW = {"case": "a", "variant": "", "opponent": "eager_f32"}


def test_every_row_is_in_the_table_with_its_numbers():
    rows = [
        ROW | compared([0.5, 0.5], [1.0, 1.0], tokens=1000, flop=1e9, limit_gflops=4.0) | WHERE,
        ROW | {"case": "b", "variant": "long", "opponent": "compile", "error": "no compiler"} | WHERE,
    ]
    text = markdown(rows)
    assert "| a | `eager_f32` | 500 | 1,000 | 2.00 | 0% | 2,000 | 2 | 0.50 |" in text
    assert "`compile` was not measured: no compiler. Cases: b, long.\n" in text
    assert "| b, long |" not in text
    assert "a machine, 2026-01-02, with jax 1.\n" in text
    assert "with jax 1, at commit 0123456789ab.\n" in markdown([rows[0] | {"commit": "0123456789abcdef"}])


def test_a_cold_start_is_next_to_the_warm_one():
    row = ROW | compared([0.5, 0.5], [1.0, 1.0]) | {"ours_cold_seconds": 2.0} | WHERE
    assert "| a | `eager_f32` | 500; cold 2,000 | 1,000 | 2.00 |" in markdown([row])


def test_a_row_of_a_gpu_has_the_memory_and_the_time_of_the_first_step_of_both():
    further = {"ours_gigabytes": 10.03, "theirs_gigabytes": 9.5}
    further |= {"ours_cold_first_step_seconds": 14.6, "theirs_cold_first_step_seconds": 60.2}
    row = ROW | compared([0.5, 0.5], [1.0, 1.0]) | further | WHERE
    shown = "| 500; 10.0 GB; first step after 15 s | 1,000; 9.5 GB; first step after 60 s | 2.00 |"
    assert shown in markdown([row])


def test_each_measurement_has_a_table_of_its_own():
    rows = [
        ROW | compared([0.5] * 2, [1.0] * 2) | WHERE | {"date": date, "case": date}
        for date in ("1 May", "2 May", "1 May")
    ]
    first, second = markdown(rows).split("Measured on a machine, 2 May")
    assert first.count("| 1 May |") == 2
    assert second.count("| 2 May |") == 1


def test_every_recorded_file_has_a_heading_that_says_what_differs():
    names = {path.stem for path in RESULTS.glob("benchmarks*.json")}
    assert names | {"benchmarks_gpu"} == {*TITLES}  # it is recorded where a GPU is
    assert all(f"### {TITLES[name]}\n" in recorded() for name in names)


def test_only_text_between_the_markers_is_replaced():
    page = f"before\n{BEGIN}\nold\n{END}\nafter\n"
    assert with_table(page, "new\n") == f"before\n{BEGIN}\nnew\n{END}\nafter\n"
    assert with_table(page + "<a>\n<b>", "new\n", ("<a>", "<b>")) == page + "<a>\nnew\n<b>"


def test_the_page_holds_the_table_of_the_recorded_rows():
    page = PAGE.read_text()
    assert recorded().count("Measured on") >= 1
    assert page == with_table(page, recorded())
