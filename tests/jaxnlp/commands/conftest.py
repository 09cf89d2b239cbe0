"""Commands keep compiled programs where all tests here do."""

import io
import sys
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def programs_stay_in_the_tests_own_folder(monkeypatch: pytest.MonkeyPatch, compiled_programs: Path) -> None:
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(compiled_programs))


@pytest.fixture
def on_standard_input(monkeypatch: pytest.MonkeyPatch) -> Callable[[bytes], None]:
    """Puts bytes there."""
    return lambda content: monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
