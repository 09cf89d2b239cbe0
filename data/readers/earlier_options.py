"""Options of an earlier run, with which its vocabulary was made."""

from collections.abc import Mapping
from typing import Any

from data import DataError


def require_same_options(earlier: Any, options: Mapping[str, Any], fields: Mapping[str, str] | None = None) -> None:
    """Raises DataError naming the first option that has another value in an earlier run.

    Args:
      earlier: has the earlier run's options as attributes.
      options: the new run's values, by attribute.
      fields: names of fields of `data` that differ from their attributes.
    """
    for name, value in options.items():
        before = getattr(earlier, name)
        if before != value:
            field = (fields or {}).get(name, name)
            raise DataError(f"data.{field} is {value}, but {before} in the earlier run; set it to {before}")
