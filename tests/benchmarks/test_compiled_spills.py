"""The table of registers in docs/accelerators.md."""

import json

import pytest

from benchmarks.compiled_spills import MARKERS, PAGE, RESULTS, cases, rows_of, table
from benchmarks.markdown import with_table


def printed(name, stores, loads, registers):
    return (
        f"ptxas info    : Compiling entry function '{name}' for 'sm_90a'\n"
        f"ptxas info    : Function properties for {name}\n"
        f"    0 bytes stack frame, {stores} bytes spill stores, {loads} bytes spill loads\n"
        f"ptxas info    : Used {registers} registers, used 1 barriers\n"
    )


def test_a_row_has_the_most_that_one_of_its_kernels_of_attention_takes():
    first = printed("fusion_1", 99, 99, 99) + printed("flash_forward", 0, 4, 32) + printed("flash_backward", 0, 0, 64)
    lines = f'noise\ncase {{"width": 16}}\n{first}case {{"width": 32}}\n{printed("flash_forward", 8, 4, 255)}'
    assert rows_of(lines) == [
        {"width": 16, "kernels": 2, "registers": 64, "spilled_bytes": 4},
        {"width": 32, "kernels": 1, "registers": 255, "spilled_bytes": 8},
    ]


def test_a_case_without_a_kernel_of_attention_is_an_error():
    with pytest.raises(ValueError, match=r'nothing of a kernel of attention for {"width": 16}'):
        rows_of(f'case {{"width": 16}}\n{printed("fusion_1", 0, 0, 9)}')


def test_the_page_has_the_table_of_the_recorded_rows_which_spill_nothing():
    recorded = json.loads(RESULTS.read_text(encoding="utf-8"))
    page = PAGE.read_text(encoding="utf-8")
    assert page == with_table(page, table(recorded), MARKERS)
    assert [{name: row[name] for name in case} for row, case in zip(recorded, cases(), strict=True)] == cases()
    assert {row["spilled_bytes"] for row in recorded} == {0}
