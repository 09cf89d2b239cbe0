"""The tables of the memory of attention in docs/accelerators.md, and what they must say."""

import json
from pathlib import Path

import pytest

from benchmarks.compiled_attention import H100_BYTES, IMPLEMENTATIONS, LENGTHS, PAGE, RESULTS, with_tables


def test_the_page_has_the_tables_of_the_recorded_rows():
    page = PAGE.read_text(encoding="utf-8")
    assert page == with_tables(page)


@pytest.mark.parametrize("path", [*filter(Path.exists, RESULTS.values())], ids=lambda path: path.stem)
def test_the_memory_of_flash_grows_with_the_length_and_that_of_vjp_with_its_square(path):
    rows = json.loads(path.read_text(encoding="utf-8"))
    sizes = {(row["positions"], row["implementation"]): row["temporary_bytes"] for row in rows}
    assert [*sizes] == [(length, name) for length in LENGTHS for name in IMPLEMENTATIONS]
    assert sizes[LENGTHS[-1], "flash"] / sizes[LENGTHS[-3], "flash"] == pytest.approx(4.0, rel=0.1)
    assert sizes[LENGTHS[1], "vjp"] / sizes[LENGTHS[0], "vjp"] == pytest.approx(4.0, rel=0.1)
    largest = sizes[LENGTHS[-1], "vjp"]
    assert largest is None or largest > H100_BYTES
