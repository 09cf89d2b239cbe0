import os
import warnings
from pathlib import Path

import jax
import pytest
from jax.experimental.compilation_cache import compilation_cache

from jaxnlp.inference import caches
from jaxnlp.inference.caches import cache_folder, use_compilation_cache


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"JAXNLP_CACHE": "/own", "XDG_CACHE_HOME": "/xdg"}, "/own"),
        ({"JAXNLP_CACHE": "~/own", "XDG_CACHE_HOME": "/xdg"}, "/home/ada/own"),
        ({"JAXNLP_CACHE": "", "XDG_CACHE_HOME": "/xdg"}, "/xdg/jaxnlp"),
        ({"XDG_CACHE_HOME": "not/absolute"}, "/home/ada/.cache/jaxnlp"),
        ({}, "/home/ada/.cache/jaxnlp"),
    ],
)
def test_cache_folder_follows_the_environment(environment, expected, monkeypatch):
    for name in ("JAXNLP_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in ({"HOME": "/home/ada"} | environment).items():
        monkeypatch.setenv(name, value)
    assert cache_folder() == Path(expected)


@pytest.fixture
def without_cache(monkeypatch):
    """JAX without a folder of compiled programs; what a test sets is undone."""
    for name in ("JAX_COMPILATION_CACHE_DIR", "JAXNLP_CACHE"):
        monkeypatch.delenv(name, raising=False)
    names = ("jax_compilation_cache_dir", "jax_enable_compilation_cache", "jax_persistent_cache_min_compile_time_secs")
    before = {name: getattr(jax.config, name) for name in names}
    jax.config.update("jax_compilation_cache_dir", None)
    yield
    for name, value in before.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()


@pytest.mark.parametrize("given", ["home", "option", "JAX_COMPILATION_CACHE_DIR", "JAXNLP_CACHE"])
def test_compilation_cache_is_in_the_given_folder(tmp_path, monkeypatch, without_cache, given):
    chosen = tmp_path / "compiled"
    if given == "option":
        monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path / "other"))
    elif given == "JAXNLP_CACHE":
        monkeypatch.setenv(given, str(tmp_path))
    elif given == "home":
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "~/compiled")
    else:
        monkeypatch.setenv(given, str(chosen))
    use_compilation_cache(chosen if given == "option" else None)
    assert jax.config.jax_compilation_cache_dir == str(chosen)


def test_a_cache_that_jax_was_given_stays_and_none_is_made_where_jax_is_told_so(tmp_path, monkeypatch, without_cache):
    monkeypatch.setenv("JAXNLP_CACHE", str(tmp_path))
    jax.config.update("jax_enable_compilation_cache", False)
    use_compilation_cache()
    assert jax.config.jax_compilation_cache_dir is None
    jax.config.update("jax_enable_compilation_cache", True)
    jax.config.update("jax_compilation_cache_dir", str(tmp_path / "theirs"))
    use_compilation_cache()
    assert jax.config.jax_compilation_cache_dir == str(tmp_path / "theirs")


def test_a_folder_that_cannot_be_made_is_not_used(tmp_path, monkeypatch, without_cache):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("JAXNLP_CACHE", str(tmp_path / "file"))
    use_compilation_cache()
    assert jax.config.jax_compilation_cache_dir is None


def test_a_folder_that_cannot_be_written_is_still_read(tmp_path, monkeypatch, without_cache):
    def refuse(path, **_):
        raise PermissionError(13, "Permission denied", str(path))

    (tmp_path / "compiled").mkdir()
    (tmp_path / "compiled" / "program").write_bytes(b"x")
    monkeypatch.setenv("JAXNLP_CACHE", str(tmp_path))
    monkeypatch.setattr(caches, "MOST_BYTES", 0)
    monkeypatch.setattr(Path, "unlink", refuse)
    use_compilation_cache()
    assert jax.config.jax_compilation_cache_dir == str(tmp_path / "compiled")


def test_a_program_compiled_after_others_is_kept(tmp_path, monkeypatch, without_cache):
    """JAX decides at its first compilation whether it keeps programs."""
    compilation_cache.reset_cache()
    jax.jit(lambda x: x * 2.0)(1.0).block_until_ready()
    monkeypatch.setenv("JAXNLP_CACHE", str(tmp_path))
    use_compilation_cache()
    jax.jit(lambda x: x * 2.0 - 5.0)(1.0).block_until_ready()
    assert [*(tmp_path / "compiled").glob("jit__lambda*")]


def test_a_program_that_cannot_be_read_is_replaced(tmp_path, monkeypatch, without_cache):
    """As a full disk leaves it. JAX alone would compile it again at each start."""
    monkeypatch.setenv("JAXNLP_CACHE", str(tmp_path))
    use_compilation_cache()

    def start():
        jax.jit(lambda x: x * 3.0 - 7.0)(1.0).block_until_ready()

    start()
    files = {file: file.read_bytes() for file in (tmp_path / "compiled").glob("jit__lambda*")}
    for file, content in files.items():
        file.write_bytes(content[:100])
    with pytest.warns(UserWarning, match="Error reading persistent compilation cache entry for 'jit__lambda"):
        start()
    assert [file.stat().st_size > 100 for file in files] == [True]
    with warnings.catch_warnings(action="error"):
        start()


def test_programs_that_were_not_used_for_the_longest_time_are_removed_above_the_bound(
    tmp_path, monkeypatch, without_cache
):
    folder = tmp_path / "compiled"
    folder.mkdir()
    inner = folder / "autotune"  # XLA's on GPUs
    inner.mkdir()
    for age, file in enumerate([folder / "newest", folder / "old", inner / "older", folder / "oldest"]):
        file.write_bytes(b"x" * 10)
        os.utime(file, (1_000_000 - age, 1_000_000 - age))
    os.utime(inner, (0, 0))
    monkeypatch.setenv("JAXNLP_CACHE", str(tmp_path))
    monkeypatch.setattr(caches, "MOST_BYTES", 25)
    use_compilation_cache()
    assert sorted(file.name for file in folder.rglob("*")) == ["autotune", "newest", "old"]
    assert jax.config.jax_compilation_cache_dir == str(folder)
