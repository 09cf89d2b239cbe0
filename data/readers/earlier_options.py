"""Options that an earlier run decided: the vocabulary of a run that starts from it was made with them."""

from collections.abc import Mapping
from typing import Any

from data import DataError


def require_same_options(earlier: Any, options: Mapping[str, Any], fields: Mapping[str, str] | None = None) -> None:
    """Raises DataError naming the first option that has another value in an earlier run.

    Args:
      earlier: has the earlier run's options as attributes.
      options: the values of the new run, by the name of the attribute.
      fields: names of fields of `data` that differ from the names of the attributes.
    """
    for name, value in options.items():
        before = getattr(earlier, name)
        if before != value:
            field = (fields or {}).get(name, name)
            raise DataError(f"data.{field} is {value}, but {before} in the earlier run; set it to {before}")
