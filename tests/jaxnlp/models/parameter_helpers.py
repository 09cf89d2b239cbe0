"""Checks of `ModelConfig.parameter`, shared by the tests of all models."""

import jax
import pytest


def assert_described(config, shapes):
    """Every parameter has an entry with one letter an axis, and only they have. Returns the entries by path."""
    found = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(shapes):
        names = tuple(part.key for part in path)
        found[names] = entry = config.parameter(names)
        assert len(entry.axes) == leaf.ndim, (names, entry, leaf.shape)
        assert all(int(letter) == size for letter, size in zip(entry.axes, leaf.shape, strict=True) if letter.isdigit())
        assert entry.matrix == names[-1].endswith("kernel"), names
    for unknown in (("unknown",), (*names, "unknown"), names[:-1], ()):
        with pytest.raises(KeyError, match=f"no parameter {'/'.join(unknown)}"):
            config.parameter(unknown)
    return found
