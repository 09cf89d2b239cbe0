"""Settings in the files of other libraries: each is applied, has no effect, or is refused by name."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from jaxnlp.input_files.json_objects import parse_json


class ForeignSettings(NamedTuple):
    """What this library does with the settings of one kind of file.

    Attributes:
      applied: names of settings that are read.
      supported: by name, the only values of a setting that agree with this library.
      ignored: by reason, names of settings without an effect here.
    """

    applied: tuple[str, ...]
    supported: Mapping[str, tuple[Any, ...]]
    ignored: Mapping[str, tuple[str, ...]]

    @property
    def names(self) -> tuple[str, ...]:
        """All known names, each once."""
        return (*self.applied, *self.supported, *(name for names in self.ignored.values() for name in names))

    def problems(self, settings: Mapping[str, Any]) -> list[str]:
        """The settings that may change a result and are not applied, each with its remedy."""
        wrong = [
            f"{name} {settings[name]!r}, expected {' or '.join(map(repr, values))}"
            for name, values in self.supported.items()
            if name in settings
            and (type(settings[name]), settings[name]) not in [(type(value), value) for value in values]
        ]
        unknown = sorted(settings.keys() - set(self.names))
        if unknown:
            wrong.append(
                f"unknown settings: {', '.join(unknown)}; if they change nothing, remove them from a copy of the file"
            )
        return wrong

    def check(self, file: Path, settings: Mapping[str, Any]) -> None:
        """Raises: ValueError with the file and its `problems`, if any."""
        wrong = self.problems(settings)
        if wrong:
            raise ValueError(f"{file}: not supported: {'; '.join(wrong)}")


def settings_in(file: Path) -> dict[str, Any]:
    """The object in a JSON file; {} when there is no file. Raises: ValueError naming a file with other content."""
    if not file.is_file():
        return {}
    try:
        settings = parse_json(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{file} is not JSON: {error}") from error
    if not isinstance(settings, dict):
        raise ValueError(f"{file}: expected an object, got {type(settings).__name__}")
    return settings
