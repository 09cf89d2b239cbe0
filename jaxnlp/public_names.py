"""Lazy public names of a package: a module is imported when one of its names is first used."""

import functools
import importlib
import pkgutil
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any


def lazily(
    package: str, path: Iterable[str], own: Iterable[str] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package whose public names are those of its modules.

    A module's classes and functions are public, unless they start with an underscore. A name that is also a module's
    means the module, such as `jaxnlp.ops.activations`. A name that two modules define must be imported from one of
    them.

    Args:
      package: its `__name__`.
      path: its `__path__`.
      own: names that the package's `__init__` defines.
    """
    modules = [info.name for info in pkgutil.iter_modules(path) if not info.name.startswith("_")]

    @functools.cache
    def names() -> dict[str, Any]:
        by_name = defaultdict(list)
        for module_name in modules:
            module = importlib.import_module(f"{package}.{module_name}")
            for name, value in vars(module).items():
                if not name.startswith("_") and callable(value) and value.__module__ == module.__name__:
                    by_name[name].append(value)
        return {name: values[0] for name, values in sorted(by_name.items()) if len(values) == 1}

    def get(name: str) -> Any:
        if name in modules:
            return importlib.import_module(f"{package}.{name}")
        if name == "__all__":
            return everything()
        if name.startswith("_") or name not in names():
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return names()[name]

    def everything() -> list[str]:
        return sorted({*own, *modules, *names()})

    return get, everything
