"""Files stay short enough to read from top to bottom."""

import pytest

ROOMS = ("benchmarks", "configs", "data", "docs", "jaxnlp", "tests", "train")
MAX_LINES = {"train/loop.py": 320}
"""Limits of single files; 450 lines is the limit of all others."""


@pytest.mark.parametrize("room", ROOMS)
def test_no_file_is_longer_than_its_limit(root, room):
    lines = {
        path.relative_to(root).as_posix(): path.read_text(encoding="utf-8").count("\n")
        for path in (root / room).rglob("*.py")
    }
    assert lines
    assert {file: count for file, count in lines.items() if count > MAX_LINES.get(file, 450)} == {}
