import dataclasses
import json
import re
import sys
from typing import Annotated, Any, Literal

import pytest

from data.character_text import CharacterText
from jaxnlp.decoding.sampling import Sampling
from jaxnlp.models import ModelConfig
from jaxnlp.models.gpt import GPTConfig
from jaxnlp.nn.compute import TransformerCompute
from jaxnlp.saving import serialization
from jaxnlp.saving.serialization import (
    ConfigError,
    differences,
    find_class,
    from_json,
    processor_from_json,
    processor_to_json,
    to_json,
)
from jaxnlp.tasks.language_model import LanguageModel
from jaxnlp.text.characters import CharacterVocabulary
from train.config import TrainConfig
from train.optimizer import AdamW
from train.optimizer.schedules import Cosine


@dataclasses.dataclass(frozen=True)
class Animal:
    name: str = "Rex"


@dataclasses.dataclass(frozen=True)
class Dog(Animal):
    weights: tuple[float, ...] = ()
    kind: Literal["small", "large", 3] = "small"
    friend: Animal | None = None
    label: str | int | None = None
    pack: tuple[Animal, ...] = ()
    described: Annotated[int, "how many legs"] = 4
    born: tuple[str, int] = ("May", 2020)

    def __post_init__(self):
        if self.described < 0:
            raise ValueError(f"described must not be negative, got {self.described}")


@dataclasses.dataclass(frozen=True)
class Owner:
    dog: Dog
    pets: tuple[tuple[Animal, ...], ...] = ()


PACKAGE = __name__.partition(".")[0]


@pytest.fixture(autouse=True)
def trusted(monkeypatch):
    """The packages that every process trusts, and this one, which has the classes above."""
    monkeypatch.setattr(serialization, "TRUSTED", {"jaxnlp", "data", "train", PACKAGE})
    monkeypatch.delenv("JAXNLP_TRUST", raising=False)


def through_text(value):
    return json.loads(json.dumps(to_json(value)))


@pytest.mark.parametrize(
    "value",
    [
        Dog(),
        Dog("Ída", (1.0, 0.1, -3e30), "large", Dog(friend=Animal("Tom")), 7, (Animal(), Dog(kind=3), Animal("x"))),
        Dog(label="seven", friend=Animal(), weights=(2.0,), born=("June", 2021)),
        Owner(Dog(label=None), ((), (Animal("a"), Dog("b")))),
    ],
    ids=["defaults", "nested", "strings", "tuples of tuples"],
)
def test_what_is_read_equals_what_was_written(value):
    found = from_json(through_text(value), type(value))
    assert found == value
    assert through_text(found) == through_text(value)


def test_a_training_config_reads_back_equal():
    config = TrainConfig(
        recipe="tiny",
        data=CharacterText(source="text_file", path="a b.txt", validation_fraction=0.25),
        model=GPTConfig(feed_forward_width=7, compute=TransformerCompute(dtype="bfloat16"), attention_dropout_rate=0.1),
        task=LanguageModel(sample_prompt="\n"),
        optimizer=AdamW(max_grad_norm=None, schedule=Cosine(unit="tokens", end=10**12, warmup=5)),
        ema_decay=0.999,
    )
    found = from_json(through_text(config), TrainConfig)
    assert found == config
    assert (type(found.model), type(found.task)) == (GPTConfig, LanguageModel)
    assert hash(found) == hash(config)


def test_a_field_of_a_base_class_reads_back_as_what_it_was():
    written = through_text(Owner(Dog(friend=Dog("Bo"))))
    assert written["dog"]["friend"]["type"] == f"{__name__}:Dog"
    assert type(from_json(written, Owner).dog.friend) is Dog
    assert from_json(through_text(GPTConfig(width=64)), ModelConfig) == GPTConfig(width=64)


def test_fields_left_out_take_their_defaults():
    assert from_json({"type": f"{__name__}:Dog", "name": "Bo"}, Dog) == Dog("Bo")


def test_whole_numbers_are_read_as_floats_where_floats_are_expected():
    found = from_json({"type": f"{__name__}:Dog", "weights": [1, 2.5]}, Dog)
    assert found.weights == (1.0, 2.5)
    assert {type(weight) for weight in found.weights} == {float}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": 3}, "config.name: expected str, got 3"),
        ({"name": None}, "config.name: expected str, got None"),
        ({"described": 4.0}, "config.described: expected int, got 4.0"),
        ({"described": True}, "config.described: expected int, got True"),
        ({"described": "4"}, "config.described: expected int, got '4'"),
        ({"weights": 1.0}, "config.weights: expected a list, got 1.0"),
        ({"weights": [1.0, "2"]}, "config.weights[1]: expected float, got '2'"),
        ({"weights": [True]}, "config.weights[0]: expected float, got True"),
        ({"weights": [10**400]}, "config.weights[0]: expected float, got 1000"),
        ({"born": ["May"]}, "config.born: expected 2 items, got 1"),
        ({"born": ["May", "2020"]}, "config.born[1]: expected int, got '2020'"),
        ({"kind": "medium"}, "config.kind: expected one of small, large, 3, got 'medium'"),
        ({"label": 1.5}, "config.label: expected str | int | None, got 1.5"),
        ({"pack": [{"type": f"{__name__}:Animal"}, 3]}, "config.pack[1]: expected an object with a key 'type', got 3"),
        ({"pack": [{"name": "x"}]}, "config.pack[0]: expected an object with a key 'type', got {'name': 'x'}"),
        ({"pack": [{"type": f"{__name__}:Animal", "name": 1}]}, "config.pack[0].name: expected str, got 1"),
        ({"pack": [{"type": f"{__name__}:Owner"}]}, "config.pack[0]: expected a Animal, got a Owner"),
        ({"colour": 1, "age": 2}, "config: Dog has no field age, colour"),
        ({"described": -1}, "config: described must not be negative, got -1"),
    ],
    ids=str,
)
def test_what_does_not_fit_is_refused_with_the_name_of_its_field(changes, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        from_json(through_text(Dog()) | changes, Dog)


def test_a_missing_field_without_default_is_named():
    with pytest.raises(ConfigError, match=r"config: .*'dog'"):
        from_json({"type": f"{__name__}:Owner"}, Owner)


def test_the_place_of_a_value_begins_with_the_name_that_it_was_given():
    with pytest.raises(ConfigError, match=r"^config\.model\.width: expected int, got 'wide'$"):
        from_json(through_text(GPTConfig()) | {"width": "wide"}, ModelConfig, where="config.model")


@pytest.mark.parametrize("name", ["os:system", "subprocess:Popen", "optax:adam", "jaxnlpx.evil:Config", "", None, 3])
def test_types_of_other_packages_are_refused_and_not_imported(name):
    with pytest.raises(
        ConfigError, match=r"config: type .* is not in a trusted package \(data, jaxnlp, tests, train\); to import"
    ):
        from_json({"type": name}, ModelConfig)


def test_classes_outside_the_library_are_refused_until_their_package_is_trusted():
    serialization.TRUSTED.remove(PACKAGE)
    written = through_text(Animal())
    for read in (lambda: from_json(written, Animal), lambda: find_class(written["type"])):
        with pytest.raises(ConfigError, match=re.escape(f"type {__name__ + ':Animal'!r} is not in a trusted package")):
            read()
    serialization.trust(PACKAGE)
    assert from_json(written, Animal) == Animal()
    assert find_class(written["type"]) is Animal
    for name in ("data.character_text:CharacterText", "train.optimizer:AdamW"):
        assert find_class(name).__name__ == name.partition(":")[2]


@pytest.mark.parametrize("names", [PACKAGE, f"other, {PACKAGE} ,", f",{PACKAGE}"])
def test_the_environment_names_trusted_packages(names, monkeypatch):
    serialization.TRUSTED.remove(PACKAGE)
    monkeypatch.setenv("JAXNLP_TRUST", names)
    assert from_json(through_text(Animal()), Animal) == Animal()


def test_a_package_that_the_environment_names_may_be_in_the_current_folder_and_hides_no_library(monkeypatch, tmp_path):
    (tmp_path / "my_animals.py").write_text("class Cat: pass\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("JAXNLP_TRUST", "my_animals")
    try:
        assert find_class("my_animals:Cat").__name__ == "Cat"
    finally:
        sys.modules.pop("my_animals", None)
    assert sys.path[-1] == str(tmp_path)


@pytest.mark.parametrize("names", ["", ",", "other", f"{PACKAGE}_2", __name__])
def test_the_environment_trusts_no_other_package(names, monkeypatch):
    serialization.TRUSTED.remove(PACKAGE)
    monkeypatch.setenv("JAXNLP_TRUST", names)
    for name in (f"{__name__}:Animal", ":Animal", "", ".:Animal"):
        with pytest.raises(ConfigError, match="is not in a trusted package"):
            find_class(name)


def test_the_refusal_of_a_class_says_how_to_trust_its_package():
    serialization.TRUSTED.remove(PACKAGE)
    with pytest.raises(ConfigError, match=f"to import code of '{PACKAGE}', set JAXNLP_TRUST={PACKAGE}$"):
        find_class(f"{__name__}:Animal")


def test_a_processor_reads_back_equal_with_its_class():
    vocabulary = CharacterVocabulary("abç")
    written = json.loads(json.dumps(processor_to_json(vocabulary)))
    assert written["type"] == "jaxnlp.text.characters:CharacterVocabulary"
    assert processor_from_json(written) == vocabulary


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([], "processor: expected an object with a key 'type', got []"),
        ({"characters": ["a"]}, "processor: expected an object with a key 'type'"),
        ({"type": "os:system"}, "processor: type 'os:system' is not in a trusted package"),
        ({"type": "jaxnlp.models.gpt:GPTConfig"}, "is not a processor: it does not define from_json"),
        ({"type": "jaxnlp.text.characters:CharacterVocabulary"}, "processor: wrong fields of a CharacterVocabulary"),
        (
            {"type": "jaxnlp.text.characters:CharacterVocabulary", "characters": ["ab"]},
            "characters[0] must be a single character, got 'ab'",
        ),
    ],
    ids=str,
)
def test_what_is_no_processor_is_refused(value, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        processor_from_json(value)


def test_refusing_a_type_does_not_run_its_module(tmp_path, monkeypatch):
    (tmp_path / "untrusted_module.py").write_text("raise SystemExit('it ran')\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match="is not in a trusted package"):
        from_json({"type": "untrusted_module:Config"}, ModelConfig)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("jaxnlp.models.gpt:Missing", "type 'jaxnlp.models.gpt:Missing' does not exist in this version"),
        (
            "jaxnlp.models.missing:GPTConfig",
            "type 'jaxnlp.models.missing:GPTConfig' does not exist in this version: No module named",
        ),
        ("jaxnlp.saving.serialization", "type 'jaxnlp.saving.serialization' does not exist in this version"),
        ("jaxnlp.saving.serialization:to_json", "'jaxnlp.saving.serialization:to_json' is not a class"),
        ("jaxnlp.text.characters:CharacterVocabulary", "is not a dataclass"),
        ("jaxnlp.decoding.sampling:Sampling", "expected a ModelConfig, got a Sampling"),
    ],
)
def test_types_that_are_no_config_are_refused(name, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        from_json({"type": name}, ModelConfig)


@pytest.mark.parametrize("value", [{"a": 1}, {1, 2}, object(), Dog, b"bytes", 1j])
def test_values_that_json_cannot_carry_back_are_refused(value):
    with pytest.raises(TypeError, match=re.escape(f"got {value!r}")):
        to_json(value)


def test_differences_name_each_field_by_its_path():
    old, new = Owner(Dog(weights=(1.0,))), Owner(Dog("Bo", (1.0, 2.0), friend=Animal()))
    friend = to_json(Animal())
    assert differences(to_json(old), to_json(new)) == [
        "dog.name: 'Rex' -> 'Bo'",
        "dog.weights: [1.0] -> [1.0, 2.0]",
        f"dog.friend: None -> {friend}",
    ]


def test_equal_values_do_not_differ():
    assert differences(to_json(Owner(Dog())), through_text(Owner(Dog()))) == []


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ({"a": 1}, {"a": 1.0}, ["a: 1 -> 1.0"]),
        ({"a": 1}, {"a": True}, ["a: 1 -> True"]),
        ({"a": 1}, {}, ["a: 1 -> '(absent)'"]),
        ({}, {"b": {"c": 2}}, ["b: '(absent)' -> {'c': 2}"]),
        ({"a": {"b": 1, "c": 2}}, {"a": {"c": 3, "b": 1, "d": 4}}, ["a.c: 2 -> 3", "a.d: '(absent)' -> 4"]),
    ],
)
def test_differences_see_types_and_absent_fields(old: Any, new: Any, expected: list[str]):
    assert differences(old, new) == expected


def test_sampling_settings_survive_too():
    sampling = Sampling(temperature=0.5, top_k=7, top_p=None)
    assert from_json(through_text(sampling), Sampling) == sampling
