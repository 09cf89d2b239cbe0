import json

import pytest

from jaxnlp.convert.decoders import families
from jaxnlp.convert.folders import PretrainedError
from jaxnlp.convert.shapes import class_names, distinct, fields_of, settings_of
from jaxnlp.models.gpt import GPTConfig


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model_type": "gpt2", "n_layer": 3, "vocab_size": 7, "activation_function": "relu"}))
    return path


def read(file, *needed, **options):
    return fields_of(file, families(), GPTConfig, needed, default="", **options)


def test_the_fields_that_a_file_gives_have_our_names_and_values(file):
    family, fields, size = read(file, "num_layers")
    assert family is families()["gpt2"]
    assert (fields, size) == ({"num_layers": 3, "activation": "relu"}, 7)


def test_the_settings_of_fields_are_those_that_give_them(file):
    family, fields, _ = read(file)
    held = dict.fromkeys(family.fields.values()) | fields
    settings = {name: value for name, value in settings_of(family, held).items() if value is not None}
    assert settings == {"n_layer": 3, "activation_function": "relu"}
    assert settings_of(family, held | {"activation": "gelu_tanh"})["activation_function"] == "gelu_new"  # of two names


def test_missing_and_strange_settings_are_listed_together(file):
    file.write_text(json.dumps({"model_type": "gpt2", "n_layer": True, "embd_pdrop": "0", "colour": 1}))
    with pytest.raises(PretrainedError) as caught:
        read(file, "width")
    for part in (
        "is not the config of a supported GPT-2",
        "n_layer True, expected a whole number",
        "embd_pdrop '0', expected a number",
        "unknown settings: colour",
        "no n_embd",
        "no vocab_size",
    ):
        assert part in str(caught.value)


def test_only_an_exported_file_may_have_settings_for_others(file):
    file.write_text(json.dumps(json.loads(file.read_text()) | {"auto_map": {}}))
    with pytest.raises(PretrainedError, match="unknown settings: auto_map"):
        read(file)
    assert read(file, exported=True)[2] == 7


@pytest.mark.parametrize("model_type", ["bert", ["gpt2"], {}, None])
def test_other_model_types_are_refused_with_the_known_ones(file, model_type):
    file.write_text(json.dumps({"model_type": model_type}))
    with pytest.raises(PretrainedError, match=r"model_type must be one of gpt2, .*, got ") as caught:
        read(file)
    assert repr(model_type) in str(caught.value)


@pytest.mark.parametrize("layers", [1_000_000, 10**18, 0, -1])
def test_a_number_outside_the_bounds_of_our_field_is_refused_before_the_model_is_described(file, layers):
    file.write_text(json.dumps(json.loads(file.read_text()) | {"n_layer": layers}))
    bound = "less than 10001" if layers > 0 else "at least 1"
    with pytest.raises(PretrainedError, match=f"n_layer {layers}, expected {bound}$"):
        read(file)


@pytest.mark.parametrize("names", ["cat", ["cat"], {"x": "cat"}, {"-1": "cat"}, {"9" * 5000: "cat"}])
def test_names_of_classes_without_numbers_are_refused(names):
    with pytest.raises(ValueError, match="id2label must be an object of numbers and names, got "):
        class_names({"id2label": names}, 1)


def test_classes_of_one_name_are_told_apart():
    assert distinct(("crane", "dog", "crane", "crane")) == ("crane", "dog", "crane (2)", "crane (3)")
    assert distinct(("a", "a", "a (1)")) == ("a", "a (1) (1)", "a (1)")
