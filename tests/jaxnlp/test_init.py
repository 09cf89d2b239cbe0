import subprocess
import sys

import pytest

import jaxnlp
from jaxnlp import runs

LAZY = """
import sys, jaxnlp
jaxnlp.__version__, dir(jaxnlp)
print(sorted({"jax", "numpy", "flax"} & sys.modules.keys()))
"""


def test_every_documented_name_is_there():
    assert dir(jaxnlp) == sorted(jaxnlp.__all__)
    for name in jaxnlp.__all__:
        assert getattr(jaxnlp, name) is not None
    assert jaxnlp.load_run is runs.load_run
    assert jaxnlp.__version__.count(".") == 2


def test_importing_the_library_imports_nothing_heavy():
    found = subprocess.run([sys.executable, "-c", LAZY], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"


def test_a_name_that_there_is_not_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'jaxnlp' has no attribute 'load_rum'"):
        jaxnlp.load_rum  # noqa: B018
