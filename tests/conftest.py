"""Settings of all tests: eight virtual CPU devices, strict dtypes and ranks, real data where it is to be had."""

import gc
import os
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# Before jax is imported: it reads them once.
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
os.environ.setdefault("JAXNLP_DATA", str(ROOT.parent / "shared" / "data"))
if not Path(os.environ["JAXNLP_DATA"]).is_dir():
    del os.environ["JAXNLP_DATA"]

import jax  # noqa: E402
import pytest  # noqa: E402

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skips what needs data sets where there are none: they are not ours to carry, and the other tests do without.

    -ra lists each skipped test with the reason.
    """
    if "JAXNLP_DATA" in os.environ:
        return
    skip = pytest.mark.skip(reason="no data sets: set JAXNLP_DATA to the folder that holds them")
    for item in items:
        if "realdata" in item.keywords:
            item.add_marker(skip)


MOST_MAPS = 20_000
"""Of memory in a test process: each compiled program has some, and Linux ends a process that has more than 65,530."""


@pytest.fixture(scope="module", autouse=True)
def few_programs() -> Iterator[None]:
    """Forgets the compiled programs of the tests so far, where there are many."""
    yield
    maps = Path("/proc/self/maps")
    if maps.exists() and maps.read_bytes().count(b"\n") > MOST_MAPS:
        jax.clear_caches()
        gc.collect()


@pytest.fixture
def devices() -> list[jax.Device]:
    """Eight virtual devices."""
    found = jax.devices()
    assert len(found) == 8
    return found


@pytest.fixture
def root() -> Path:
    """The checkout."""
    return ROOT
