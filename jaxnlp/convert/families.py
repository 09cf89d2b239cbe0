"""The families in a package: one a file, named after its `model_type`."""

import importlib
import pkgutil
from typing import Any


def families_in(package: str) -> dict[str, Any]:
    """The `FAMILY` of each file of a package, by the `model_type` that its rules support."""
    files = pkgutil.iter_modules(importlib.import_module(package).__path__)
    found = (importlib.import_module(f"{package}.{file.name}").FAMILY for file in files)
    return {family.rules.supported["model_type"][0]: family for family in found}
