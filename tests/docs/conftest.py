"""Pages and the ledger, as tests compare them."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Entries = dict[tuple[str, str], dict[str, Any]]


@pytest.fixture
def entries(root: Path) -> Callable[[str], Entries]:
    """The newest entry of each metric and split in a file of docs/results."""

    def read(name: str) -> Entries:
        held = json.loads((root / "docs" / "results" / f"{name}.json").read_text(encoding="utf-8"))
        return {(entry["metric"], entry["split"]): entry for entry in held}

    return read


@pytest.fixture
def table(root: Path) -> Callable[[str, str], list[list[str]]]:
    """The cells of those rows of a page's tables whose first cell is a run's name in backticks that fits a pattern."""

    def read(page: str, pattern: str) -> list[list[str]]:
        text = (root / "docs" / page).read_text(encoding="utf-8")
        found = re.findall(rf"^\| `({pattern})` \|(.*)\|$", text, re.M)
        return [[name, *(cell.strip() for cell in cells.split("|"))] for name, cells in found]

    return read
