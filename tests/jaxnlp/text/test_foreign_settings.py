from pathlib import Path

import pytest

from jaxnlp.text.foreign_settings import ForeignSettings, settings_in

KNOWN = ForeignSettings(("width",), {"act": ("gelu",), "sides": ({}, None)}, {"training": ("seed", "rate")})


def test_settings_that_are_applied_supported_or_without_effect_are_accepted():
    assert KNOWN.names == ("width", "act", "sides", "seed", "rate")
    assert KNOWN.problems({"width": 3, "act": "gelu", "sides": {}, "seed": object()}) == []
    assert KNOWN.problems({"sides": None}) == []


def test_other_values_and_unknown_settings_are_named_with_the_file():
    with pytest.raises(ValueError, match=r"^a/b.json: not supported: act 'relu', expected 'gelu'; unknown settings: x"):
        KNOWN.check(Path("a/b.json"), {"act": "relu", "x": 1})


def test_true_is_not_the_number_one():
    assert ForeignSettings((), {"flag": (1,)}, {}).problems({"flag": True}) == ["flag True, expected 1"]


def test_settings_are_an_object_in_json_or_there_are_none(tmp_path):
    assert settings_in(tmp_path / "nothing.json") == {}
    for content, message in (("{", "is not JSON"), ("[]", "expected an object, got list")):
        (tmp_path / "file.json").write_text(content)
        with pytest.raises(ValueError, match=rf"^{tmp_path}/file.json.*{message}"):
            settings_in(tmp_path / "file.json")
