import importlib
import inspect
import re

import pytest

from jaxnlp import decoding, models, nn, ops, tasks
from jaxnlp.public_names import lazily

PACKAGES = [decoding, models, nn, ops, tasks]


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.__name__)
def test_every_name_that_a_package_lists_is_there(package):
    assert package.__all__ == dir(package) == sorted(set(package.__all__))
    for name in package.__all__:
        assert getattr(package, name) is not None


def test_functions_and_classes_are_those_of_their_modules():
    from jaxnlp.models import GPTConfig
    from jaxnlp.ops import dot_product_attention

    assert dot_product_attention is importlib.import_module("jaxnlp.ops.attention").dot_product_attention
    assert GPTConfig is importlib.import_module("jaxnlp.models.gpt").GPTConfig
    assert ops.activations is importlib.import_module("jaxnlp.ops.activations")  # the name of a module is the module


def test_functions_of_decoding_are_functions_also_where_a_module_has_a_similar_name():
    from jaxnlp.decoding import beam_parse, beam_search, complete, generate

    assert all(map(inspect.isfunction, (beam_parse, beam_search, complete, generate)))


def test_a_name_that_nothing_has_is_an_attribute_error():
    with pytest.raises(AttributeError, match=re.escape("module 'jaxnlp.ops' has no attribute 'atend'")):
        ops.atend  # noqa: B018
    with pytest.raises(ImportError, match="cannot import name 'atend'"):
        exec("from jaxnlp.ops import atend")


def test_a_name_of_two_modules_and_a_private_one_are_of_neither(tmp_path, monkeypatch):
    folder = tmp_path / "pack_of_names"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "first.py").write_text("from math import sqrt\ndef both(): pass\ndef one(): pass\ndef _hidden(): pass\n")
    (folder / "second.py").write_text("def both(): pass\nclass Two: pass\nNUMBER = 3\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    get, listed = lazily("pack_of_names", [str(folder)], own=("Own",))
    assert listed() == ["Own", "Two", "first", "one", "second"]
    assert get("one")() is None
    with pytest.raises(AttributeError, match="has no attribute 'both'"):
        get("both")
