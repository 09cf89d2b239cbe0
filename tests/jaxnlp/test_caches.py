from pathlib import Path

import jax
import pytest

from jaxnlp.caches import cache_folder, use_compilation_cache


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


@pytest.mark.parametrize("given", ["option", "JAX_COMPILATION_CACHE_DIR", "JAXNLP_CACHE"])
def test_compilation_cache_is_in_the_given_folder(tmp_path, monkeypatch, given):
    for name in ("JAX_COMPILATION_CACHE_DIR", "JAXNLP_CACHE"):
        monkeypatch.delenv(name, raising=False)
    chosen = tmp_path / "compiled"
    if given == "option":
        monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path / "other"))
    elif given == "JAXNLP_CACHE":
        monkeypatch.setenv(given, str(tmp_path))
    else:
        monkeypatch.setenv(given, str(chosen))
    before = jax.config.jax_compilation_cache_dir
    try:
        use_compilation_cache(chosen if given == "option" else None)
        assert jax.config.jax_compilation_cache_dir == str(chosen)
    finally:
        jax.config.update("jax_compilation_cache_dir", before)
