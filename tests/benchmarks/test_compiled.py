"""The table of docs/accelerators.md."""

import json

from benchmarks.compiled import PAGE, RESULTS, RUNS, table, text_of_words
from benchmarks.markdown import with_table
from jaxnlp.text.byte_pairs import BytePairs


def test_the_page_has_the_table_of_the_recorded_rows():
    rows = json.loads(RESULTS.read_text(encoding="utf-8"))
    page = PAGE.read_text(encoding="utf-8")
    assert page == with_table(page, table(rows))
    assert {row["run"] for row in rows} == {*RUNS}


def test_the_text_has_words_that_differ(tmp_path):
    text = text_of_words(tmp_path / "text.txt", count=2_000).read_text()
    assert len(set(text.split())) == 2_000
    assert BytePairs.of([text], 600).size == 600
