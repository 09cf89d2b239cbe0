"""The table of runs at once in docs/training.md."""

import json

from benchmarks.compiled_at_once import MARKERS, PAGE, RECIPES, RESULTS, ratio, table
from benchmarks.markdown import with_table


def test_the_page_has_the_table_of_the_recorded_rows_which_are_faster_at_once():
    recorded = json.loads(RESULTS.read_text(encoding="utf-8"))
    page = PAGE.read_text(encoding="utf-8")
    assert page == with_table(page, table(recorded), MARKERS)
    assert tuple(row["run"] for row in recorded) == RECIPES
    assert min(map(ratio, recorded)) > 1.5
