"""Settings of all tests: eight virtual CPU devices, strict dtypes and ranks, real data where it is to be had."""

import gc
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from tests.xla_flags import QUICK

ROOT = Path(__file__).resolve().parent.parent

# Before jax is imported: it reads them once.
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ.setdefault("OMP_NUM_THREADS", "1")  # PyTorch's threads would spin while they wait
flags = ["--xla_force_host_platform_device_count=8"]
if os.environ.get("JAXNLP_TEST_OPTIMIZED") != "1":
    flags.append(QUICK)
os.environ["XLA_FLAGS"] = " ".join(flags)
os.environ.setdefault("JAXNLP_DATA", str(ROOT.parent / "shared" / "data"))
if not Path(os.environ["JAXNLP_DATA"]).is_dir():
    del os.environ["JAXNLP_DATA"]

import jax  # noqa: E402
import pytest  # noqa: E402

gc.disable()  # until all tests are collected: what importing and collecting makes stays
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")


LONGEST = (
    "tests/guards/test_programs.py",
    "tests/train/test_encoder_commands.py",
    "tests/train/test_names.py",
    "tests/train/test_start.py",
    "tests/train/run/test_clusters.py",
    "tests/train/run/test_processes.py",
    "tests/train/parallel/test_elastic.py",
    "tests/train/parallel/test_evaluation.py",
    "tests/train/parallel/test_modes.py",
)
"""Files that take minutes."""


@pytest.hookimpl(optionalhook=True)  # pytest -p no:xdist has no such hook
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Gives the tests of a file to one process, and those of a task: they share a trained run."""
    from xdist.scheduler import LoadFileScheduling

    class ByTask(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid.partition("::")[0])

    return ByTask(config, log)


def group_of(file: str) -> str:
    """The file, or the folder of its task."""
    folder = file.rpartition("/")[0]
    return folder if folder.startswith("tests/jaxnlp/tasks/") else file


@pytest.hookimpl(tryfirst=True)  # before pytest reads -m
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skips tests whose data sets are missing; marks the cases of sweeps that `make test` leaves out; puts the longest
    files first, so that no process has to run one at the end while the others wait.

    -ra lists each skipped test with the reason. JAXNLP_TEST_PART leaves out thorough tests that are not in this part.
    """
    items.sort(key=lambda item: item.nodeid.partition("::")[0] not in LONGEST)
    sweeps: dict[str, list[pytest.Item]] = {}
    for item in items:
        # Keywords also have the words of the names of folders, files, functions and ids.
        if "JAXNLP_DATA" not in os.environ and item.get_closest_marker("realdata") is not None:
            item.add_marker(pytest.mark.skip(reason="no data sets: set JAXNLP_DATA to the folder that holds them"))
        if item.get_closest_marker("sweep") is not None and hasattr(item, "callspec"):
            sweeps.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for cases in sweeps.values():
        mark = cases[0].get_closest_marker("sweep")
        if mark.args:
            kept = evenly_spaced(len(cases), *mark.args)
        else:
            kept = covering([case.callspec._idlist for case in cases])  # an id for each parametrize
        for number, case in enumerate(cases):
            if number not in kept:
                case.add_marker(pytest.mark.thorough)
    if given := os.environ.get("JAXNLP_TEST_PART"):
        thorough = [item for item in items if item.get_closest_marker("thorough") is not None]
        others = {*thorough} - {*in_part(thorough, given)}
        items[:] = [item for item in items if item not in others]


T = TypeVar("T")


def in_part(items: Sequence[T], part: str) -> Sequence[T]:
    """Every N-th item, from number K, of the part K/N: all parts have each item once, and cases of each long test."""
    number, _, count = part.partition("/")
    return items[int(number) % int(count) :: int(count)]


def evenly_spaced(count: int, chosen: int) -> list[int]:
    """Numbers below `count`, the first and the last among them where at least two are chosen."""
    if chosen >= count:
        return list(range(count))
    return [0] if chosen == 1 else [round(i * (count - 1) / (chosen - 1)) for i in range(chosen)]


def covering(cases: Sequence[Sequence[str]]) -> list[int]:
    """Numbers of a few cases in which each value of each parameter occurs, by a greedy choice."""
    values = [set(enumerate(case)) for case in cases]
    missing, kept = set().union(*values), []
    while missing:
        best = max(range(len(cases)), key=lambda number: len(values[number] & missing))
        kept.append(best)
        missing -= values[best]
    return sorted(kept)


@pytest.fixture(scope="session")
def compiled_programs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of compiled programs. All processes of a session share it. JAXNLP_TEST_PROGRAMS names one for several
    sessions."""
    if given := os.environ.get("JAXNLP_TEST_PROGRAMS"):
        return Path(given).resolve()
    folder = tmp_path_factory.getbasetemp()
    return (folder.parent if hasattr(request.config, "workerinput") else folder) / "compiled"


@pytest.fixture(scope="session", autouse=True)
def float32_products() -> Iterator[None]:
    """`matmul_dtype="auto"` rounds nothing: tests find the same numbers on every processor. Those of rounded products
    say so."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("jaxnlp.ops.matrix_products.cpu_multiplies_bfloat16", lambda: False)
        yield


@pytest.fixture(scope="session", autouse=True)
def quick_compilation(compiled_programs: Path) -> None:
    """Compiles each program once and without optimisations, since test programs run for milliseconds.

    It lasts for the session: runs that several files of tests share are trained before the fixtures of a module.
    With JAXNLP_TEST_OPTIMIZED=1 in the environment programs are optimised, as users' are: see `make test-optimized`.
    """
    settings = {
        "jax_compilation_cache_dir": str(compiled_programs),
        "jax_persistent_cache_min_compile_time_secs": 0.0,
        "jax_disable_most_optimizations": os.environ.get("JAXNLP_TEST_OPTIMIZED") != "1",
    }
    for name, value in settings.items():
        jax.config.update(name, value)


def pytest_collection_finish() -> None:
    """Python looks for garbage more rarely: tracing makes millions of objects that stay, and a search reads all."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(200_000, 50, 1_000)
    gc.enable()


MOST_MAPS = 45_000
"""Limit of memory maps: each compiled program has some, and Linux ends a process with more than 65,530."""


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
