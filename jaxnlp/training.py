"""Recipes and training in Python: `jaxnlp.recipe` and `jaxnlp.train`.

The packages `train`, `data` and `configs` are next to jaxnlp in a checkout. The wheel has them in jaxnlp/_training,
because their names are too common for site-packages. Only `import_training` puts their folder on `sys.path`.
"""

import importlib
import inspect
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import jaxnlp
from jaxnlp.saving.quiet_logging import logging_unchanged

if TYPE_CHECKING:
    from jaxnlp.tasks import Trained

PACKAGES = ("train", "data", "configs")


def import_training(module: str) -> ModuleType:
    """A module of the packages for training, such as `train.loop`.

    Their folder then stays first on `sys.path`, so a user's `train.py` or `data.py` replaces none of them.

    Raises: ImportError when the user's program has imported another module with one of their names.
    """
    package = Path(jaxnlp.__file__).resolve().parent
    folder = package / "_training" if (package / "_training").is_dir() else package.parent
    for name in PACKAGES:
        other = sys.modules.get(name)
        if other is not None and folder / name / "__init__.py" != Path(other.__file__ or "").resolve():
            where = other.__file__ or list(other.__path__)
            raise ImportError(
                f"{name} is imported already, from {where}; rename it: jaxnlp's packages for training are "
                f"{', '.join(PACKAGES)}"
            )
    sys.path[:] = [str(folder), *(entry for entry in sys.path if entry != str(folder))]
    with logging_unchanged():
        return importlib.import_module(module)


def recipe(name: str | Path, **changes: Any) -> Any:
    """A recipe's config, a `TrainConfig`, with changed fields.

        jaxnlp.recipe("bert_classify", total_steps=100, **{"data.path": "reviews.csv", "model.num_layers": 2})

    Args:
      name: one of `jaxnlp train --list`, or the path of a .py file like those in configs.
      changes: new values of fields; dotted names set nested fields.

    Raises: ValueError for an unknown recipe or field, and for a value that the config refuses.
    """
    recipes = import_training("train.recipes")
    with logging_unchanged():  # the recipe imports Grain, which imports Orbax
        config = recipes.load_recipe(str(name))
    return import_training("train.config").update(config, **changes)


def train(config: Any, workdir: str | Path, **options: Any) -> "Trained":
    """Trains a recipe, or resumes its run. Returns: the trained run, as `load_run`.

        run = jaxnlp.train("gpt_python_docs", "runs/mine")
        run = jaxnlp.train(jaxnlp.recipe("bert_classify", **{"data.path": "reviews.csv"}), "runs/reviews")

    Args:
      config: a recipe's name or path, or a config.
      workdir: the run's folder.
      options: of `train.loop.fit`, such as `extend=True`.

    Raises: the errors of `fit`; ValueError for a wrong config, path or flag; TypeError for an unknown option;
    KeyboardInterrupt after Ctrl-C, or another signal that stops and saves the run.
    """
    if isinstance(config, str | Path):
        config = recipe(config)
    if not isinstance(config, import_training("train.config").TrainConfig):
        got = config.__name__ if isinstance(config, type) else type(config).__name__
        raise ValueError(f"train: expected the name or path of a recipe, or a config of jaxnlp.recipe, got {got}")
    if not isinstance(workdir, str | Path):
        raise ValueError(f"train: expected the path of the run's folder, got {type(workdir).__name__}")
    signature = inspect.signature(import_training("train.loop").fit)
    known = [*signature.parameters][2:]
    unknown = next((option for option in options if option not in known), None)
    if unknown is not None:
        raise TypeError(
            f"train: unknown option {unknown!r}; the options are {', '.join(known)}, and fields of the config are set "
            "by jaxnlp.recipe(NAME, FIELD=VALUE)"
        )
    options = importlib.import_module("jaxnlp.inference.arguments").plain_kinds(signature, options)
    importlib.import_module("jaxnlp.inference.caches").use_compilation_cache()
    result = import_training("train.loop").fit(config, workdir, **options)
    if result.stopped_by is not None:
        raise KeyboardInterrupt(f"{result.stopped_by}: {workdir} is saved; the same call resumes it")
    own = {type(part).__module__.partition(".")[0] for part in (config.data, config.model, config.task)}
    return jaxnlp.load_run(workdir, trust=sorted(own))
