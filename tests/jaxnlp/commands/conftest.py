"""Commands keep compiled programs where all tests here do."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def programs_stay_in_the_tests_own_folder(monkeypatch: pytest.MonkeyPatch, compiled_programs: Path) -> None:
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(compiled_programs))
