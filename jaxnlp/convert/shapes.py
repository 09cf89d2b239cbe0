"""The fields of a model's config, and the names of classes, from Transformers' config.json."""

import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, get_type_hints

from jaxnlp.config import Count, outside
from jaxnlp.convert.folders import PretrainedError, read_object
from jaxnlp.convert.tensors import WeightsError
from jaxnlp.text.foreign_settings import ForeignSettings


class StoredModels(Protocol):
    """The parts of a family that this file reads."""

    @property
    def title(self) -> str:
        """Its name in messages."""

    @property
    def fields(self) -> Mapping[str, str]:
        """Settings of config.json that are fields of our config."""

    @property
    def values(self) -> Mapping[str, Mapping[Any, Any]]:
        """Our values for a setting's values that differ."""

    @property
    def rules(self) -> ForeignSettings:
        """Rules for config.json."""


_KINDS: Mapping[Any, tuple[tuple[type, ...], str]] = {
    float: ((int, float), "a number"),
    int: ((int,), "a whole number"),
    int | None: ((int, types.NoneType), "a whole number or null"),
    bool: ((bool,), "true or false"),
}


def fields_of(
    file: Path,
    families: Mapping[str, Any],
    kind: type,
    needed: Sequence[str],
    *,
    default: str,
    exported: bool = False,
    number: str = "vocab_size",
    settings: Mapping[str, Any] | None = None,
) -> tuple[Any, dict[str, Any], int]:
    """The family of a config.json, the fields of our config that it sets, and a whole number: by default V.

    Args:
      file: the config.
      families: each as `StoredModels`, by its `model_type`.
      kind: the class of our config, whose types the settings must have.
      needed: fields that the file must set.
      default: the model type of a file that names none.
      exported: whether this library wrote the file, perhaps with settings for a program next to it.
      number: the setting with this number, which is not a field of our config.
      settings: the file's part for this model; None = the whole file.

    Raises: PretrainedError for other model types, and listing missing and unsupported settings.
    """
    settings = read_object(file) if settings is None else settings
    model_type = settings.get("model_type", default)
    if not isinstance(model_type, str) or model_type not in families:
        raise PretrainedError(f"{file}: model_type must be one of {', '.join(families)}, got {model_type!r}")
    family: StoredModels = families[model_type]
    rules = family.rules
    strange = rules.problems({name: settings[name] for name in settings if not exported or name in rules.names})
    hints, bounded = get_type_hints(kind), get_type_hints(kind, include_extras=True)
    kinds = {theirs: hints[ours] for theirs, ours in family.fields.items() if theirs not in family.values}
    bounds = {number: Count, **{theirs: bounded.get(ours) for theirs, ours in family.fields.items()}}
    for theirs, hint in (*kinds.items(), (number, int)):
        if theirs in settings:
            expected, name = _KINDS[hint]
            # isinstance would take True for a number.
            if type(settings[theirs]) not in expected:
                strange.append(f"{theirs} {settings[theirs]!r}, expected {name}")
            elif bound := outside(settings[theirs], bounds[theirs]):
                strange.append(f"{theirs} {settings[theirs]!r}, expected {bound}")
    names = [*(theirs for theirs, ours in family.fields.items() if ours in needed), number]
    missing = [f"no {name}" for name in names if name not in settings]
    if strange or missing:
        problems = "; ".join(strange + missing)
        raise PretrainedError(f"{file} is not the config of a supported {family.title}: {problems}")
    fields = {
        ours: family.values[theirs][settings[theirs]] if theirs in family.values else settings[theirs]
        for theirs, ours in family.fields.items()
        if theirs in settings
    }
    return family, fields, settings[number]


def settings_of(family: StoredModels, ours: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of config.json for these fields of our config, each with the first equal value.

    Raises: WeightsError for a value that the family does not have.
    """
    settings = {theirs: ours[name] for theirs, name in family.fields.items()}
    for name, values in family.values.items():
        same = [theirs for theirs, value in values.items() if value == settings[name]]
        if not same:
            field = family.fields[name]
            refuse_variants(family.title, [f"model.{field} = {settings[name]}"])
        settings[name] = same[0]
    return settings


def differing(config: Any, fixed: Mapping[str, Any], *, prefix: str = "model.") -> list[str]:
    """The fields of our config that differ from the fixed values of a family, each with its value."""
    values = {name: getattr(config, name) for name in fixed}
    return [f"{prefix}{name} = {value}" for name, value in values.items() if value != fixed[name]]


def refuse_variants(title: str, strange: Sequence[str]) -> None:
    """Raises: WeightsError naming the variants of a model that its family in Transformers does not have."""
    if strange:
        raise WeightsError(f"Transformers' {title} does not support {', '.join(strange)}")


def label_settings(names: Sequence[str]) -> dict[str, Any]:
    """The settings of config.json with the names of a head's outputs, and so their number."""
    return {
        "id2label": {str(label): name for label, name in enumerate(names)},
        "label2id": {name: label for label, name in enumerate(names)},
    }


def class_names(settings: Mapping[str, Any], outputs: int, *, adapted: bool = False) -> tuple[str, ...]:
    """The names of a head's outputs in the config of Transformers.

    Args:
      settings: the config.
      outputs: their number.
      adapted: whether the config is another model's, whose names only apply if it has as many.

    Raises: ValueError for another number of names, and for other numbers.
    """
    given = settings.get("id2label") or {}
    if not isinstance(given, dict) or not all(str(index).isdecimal() and len(str(index)) < 10 for index in given):
        raise ValueError(f"id2label must be an object of numbers and names, got {given!r:.100}")
    names = {int(index): str(name) for index, name in given.items()}
    if not names or (adapted and len(names) != outputs):
        names = {index: f"LABEL_{index}" for index in range(outputs)}  # as Transformers calls them
    if sorted(names) != list(range(outputs)):
        raise ValueError(f"id2label has the names of {len(names)} classes, expected {outputs}")
    return tuple(names[index] for index in range(outputs))


def distinct(names: Sequence[str]) -> tuple[str, ...]:
    """The names of classes; repeated ones are followed by their ids, such as `crane (517)`."""
    taken, found = {*names}, dict[str, None]()
    for index, name in enumerate(names):
        one = name
        while one in found or (one != name and one in taken):
            one = f"{one} ({index})"
        found[one] = None
    return tuple(found)
