"""The torture: its table, and a few of its rounds."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.markdown import with_table
from tests.torture.__main__ import MARKERS, PAGE, RESULTS, drawn, table
from tests.torture.families import FAMILIES
from tests.torture.faults import FAULTS
from tests.torture.rounds import FAILED, MISSED


def test_the_page_has_the_table_of_at_least_200_recorded_rounds_and_none_failed():
    page, recorded = PAGE.read_text(encoding="utf-8"), json.loads(RESULTS.read_text(encoding="utf-8"))
    assert page == with_table(page, table(recorded), MARKERS)
    assert {row["fault"] for row in recorded[1:]} == FAULTS.keys()
    assert not [row for row in recorded[1:] if row["outcome"] == FAILED]
    assert len([row for row in recorded[1:] if row["outcome"] != MISSED]) >= 200


def test_a_seed_always_draws_the_same_round_and_many_seeds_draw_everything():
    rounds = [[drawn(seed, Path("x"), Path("y")) for seed in range(200)] for _ in range(2)]
    assert rounds[0] == rounds[1]
    assert {one.fault for one in rounds[0]} == FAULTS.keys()
    assert {one.family for one in rounds[0]} == {*FAMILIES}
    assert {one.moment for one in rounds[0]} == {moment for fault in FAULTS.values() for moment in fault.moments}
    assert len({one.draw.random() for one in rounds[0]}) == 200


@pytest.mark.thorough
def test_a_few_rounds_lead_to_the_same_bits_or_to_one_line(tmp_path, root):
    command = [sys.executable, "-m", "tests.torture", "--rounds", "4", "--jobs", "1", "--families", "gpt"]
    done = subprocess.run(
        [*command, "--folder", str(tmp_path)],
        env=os.environ | {"PYTHONPATH": str(root)},
        cwd=root,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
