"""Cache directories of downloads and compiled programs."""

import os
from pathlib import Path


def cache_folder() -> Path:
    """The cache directory: $JAXNLP_CACHE, else $XDG_CACHE_HOME/jaxnlp, else ~/.cache/jaxnlp."""
    if own := os.environ.get("JAXNLP_CACHE"):
        return Path(own).expanduser()
    shared = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG specification ignores paths that are not absolute.
    return (Path(shared) if os.path.isabs(shared) else Path.home() / ".cache") / "jaxnlp"


def use_compilation_cache(folder: Path | None) -> None:
    """Keeps compiled programs on disk, so that the next start does not compile them again.

    Args:
      folder: the cache; None = $JAX_COMPILATION_CACHE_DIR, or a folder in `cache_folder`.
    """
    import jax  # imported here, because data pipelines import this module but do not need jax

    chosen = folder or os.environ.get("JAX_COMPILATION_CACHE_DIR") or cache_folder() / "compiled"
    jax.config.update("jax_compilation_cache_dir", str(chosen))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
