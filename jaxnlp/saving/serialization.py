"""Frozen dataclasses to JSON and back without loss.

A nested dataclass becomes an object with its fields and a key `type`, `module:Class`, so that a field annotated with a
base class reads back as the same subclass.
"""

import dataclasses
import importlib
import os
import sys
import types
import typing
from typing import Any

TRUSTED = {"jaxnlp", "data", "train"}
"""Packages whose classes a saved config or processor may name; reading it imports their modules."""
TRUST_VARIABLE = "JAXNLP_TRUST"
"""Environment variable with further such packages, separated by commas, perhaps in the current folder."""


class ConfigError(ValueError):
    """A config that cannot be read or is invalid; the message has the field and the reason."""


class UntrustedError(ConfigError):
    """A class of a package that is not trusted."""


def to_json(value: Any) -> Any:
    """The value as dicts, lists, strings, numbers, booleans and None. Raises: TypeError for any other value."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: to_json(getattr(value, field.name)) for field in dataclasses.fields(value)}
        return {"type": class_name(value), **fields}
    if isinstance(value, tuple):
        return [to_json(item) for item in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"a config may have only dataclasses, tuples, numbers, strings, booleans and None, got {value!r}")


def from_json(value: Any, expected: Any, *, where: str = "config") -> Any:
    """Builds a value of the expected type from the output of `to_json`.

    Args:
      value: parsed JSON.
      expected: a type: a dataclass or a base of it, tuple[X, ...], tuple[X, Y], a union, a Literal, or a plain type.
      where: name of the value, for messages.

    Raises: ConfigError with the field, the value and the expected type.
    """
    origin = typing.get_origin(expected)
    if origin is typing.Annotated:
        return from_json(value, typing.get_args(expected)[0], where=where)
    if origin is typing.Literal:
        if value not in typing.get_args(expected):
            choices = ", ".join(map(str, typing.get_args(expected)))
            raise ConfigError(f"{where}: expected one of {choices}, got {value!r}")
        return value
    if origin in (typing.Union, types.UnionType):
        options = [option for option in typing.get_args(expected) if option is not type(None) or value is None]
        if len(options) == 1:  # its own message is more precise
            return from_json(value, options[0], where=where)
        for option in options:
            try:
                return from_json(value, option, where=where)
            except ConfigError:
                continue
        raise ConfigError(f"{where}: expected {expected}, got {value!r}")
    if origin is tuple:
        if not isinstance(value, list):
            raise ConfigError(f"{where}: expected a list, got {value!r}")
        items = typing.get_args(expected)
        if items[-1:] == (Ellipsis,):
            items = items[:1] * len(value)
        if len(value) != len(items):
            raise ConfigError(f"{where}: expected {len(items)} items, got {len(value)}")
        pairs = enumerate(zip(value, items, strict=True))
        return tuple(from_json(element, item, where=f"{where}[{index}]") for index, (element, item) in pairs)
    if dataclasses.is_dataclass(expected):
        return _dataclass_from_json(value, expected, where)
    if expected in (None, type(None)):
        fits = value is None
    elif expected is float:
        fits = isinstance(value, float) or (type(value) is int and abs(value) < 2**63)
    else:
        fits = type(value) is expected
    if not fits:
        raise ConfigError(f"{where}: expected {getattr(expected, '__name__', expected)}, got {value!r}")
    return float(value) if expected is float else value


def _dataclass_from_json(value: Any, base: Any, where: str) -> Any:
    if not isinstance(value, dict) or "type" not in value:
        raise ConfigError(f"{where}: expected an object with a key 'type', got {value!r}")
    cls: type = find_class(value["type"], where=where)
    if not dataclasses.is_dataclass(cls):
        raise ConfigError(f"{where}: {value['type']!r} is not a dataclass")
    if not issubclass(cls, base):
        raise ConfigError(f"{where}: expected a {base.__name__}, got a {cls.__name__}")
    hints = typing.get_type_hints(cls, include_extras=True)
    names = {field.name for field in dataclasses.fields(cls)}
    given = {name: field for name, field in value.items() if name != "type"}
    unknown = given.keys() - names
    if unknown:
        raise ConfigError(f"{where}: {cls.__name__} has no field {', '.join(sorted(unknown))}")
    fields = {name: from_json(field, hints[name], where=f"{where}.{name}") for name, field in given.items()}
    try:
        return cls(**fields)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{where}: {error}") from error


def differences(old: Any, new: Any, *, prefix: str = "") -> list[str]:
    """One line for each field that differs between two configs, or their JSON: `name: old -> new`."""
    old, new = (to_json(config) if dataclasses.is_dataclass(config) else config for config in (old, new))
    if isinstance(old, dict) and isinstance(new, dict):
        names = [*old, *(name for name in new if name not in old)]
        absent = "(absent)"
        return [
            line
            for name in names
            for line in differences(old.get(name, absent), new.get(name, absent), prefix=f"{prefix}.{name}".lstrip("."))
        ]
    return [] if old == new and type(old) is type(new) else [f"{prefix}: {old!r} -> {new!r}"]


def same_fields(config: Any, identity: Any) -> Any:
    """The fields of a config, as JSON, that an identity also has, nested ones included."""
    if not isinstance(config, dict) or not isinstance(identity, dict):
        return config
    return {name: same_fields(value, identity[name]) for name, value in config.items() if name in identity}


def identity_changes(before: dict[str, Any], now: dict[str, Any], *, extended: bool = False) -> list[str]:
    """The `differences` between two identities of a run; if it may be `extended`, ignoring more steps."""
    first, second = before.get("total_steps"), now.get("total_steps")
    if extended and isinstance(first, int) and isinstance(second, int) and first < second:
        before = before | {"total_steps": second}
    return differences(before, now)


def trust(package: str) -> None:
    """Trusts a package: configs and processors in this process may name its classes. See also `TRUST_VARIABLE`."""
    TRUSTED.add(package)


def class_name(value: Any) -> str:
    """The name "module:Class" of a value's class; `find_class` finds it by this name."""
    return f"{type(value).__module__}:{type(value).__qualname__}"


def find_class(name: Any, *, where: str = "type") -> Any:
    """The class of a name "module:Class".

    Raises: ConfigError for an unknown class, and UntrustedError for one of an untrusted package.
    """
    module_name, _, class_name = str(name).partition(":")
    package = module_name.partition(".")[0]
    named = {entry.strip() for entry in os.environ.get(TRUST_VARIABLE, "").split(",")} - {""}
    trusted = TRUSTED | named
    if package in named - TRUSTED and os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # last: its files must not replace libraries
    if package not in trusted:
        raise UntrustedError(
            f"{where}: type {name!r} is not in a trusted package ({', '.join(sorted(trusted))}); to import code of "
            f"{package!r}, set {TRUST_VARIABLE}={package}"
        )
    try:
        cls = getattr(importlib.import_module(module_name), class_name)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"{where}: type {name!r} does not exist in this version: {error}") from error
    if not isinstance(cls, type):
        raise ConfigError(f"{where}: {name!r} is not a class")
    return cls


def processor_to_json(processor: Any) -> dict[str, Any]:
    """A processor's fields, and its class as "module:Class" under `type`."""
    return {"type": class_name(processor), **processor.to_json()}


def processor_from_json(value: Any, where: str = "processor") -> Any:
    """The processor of a `processor_to_json`. Raises: ConfigError when the value is not a processor."""
    if not isinstance(value, dict) or not isinstance(value.get("type"), str):
        raise ConfigError(f"{where}: expected an object with a key 'type', got {value!r}"[:300])
    cls = find_class(value["type"], where=where)
    if not hasattr(cls, "from_json"):
        raise ConfigError(f"{where}: {value['type']} is not a processor: it does not define from_json")
    try:
        return cls.from_json({name: field for name, field in value.items() if name != "type"})
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"{where}: wrong fields of a {cls.__name__}: {error}") from error


def on_any_machine(config: Any) -> Any:
    """A model's config as JSON with `auto` instead of `cudnn` or `flash`, so that it works without a GPU."""
    if not isinstance(config, dict):
        return "auto" if config in ("cudnn", "flash") else config
    return {name: on_any_machine(value) for name, value in config.items()}
