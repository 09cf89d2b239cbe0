"""jaxnlp: the models of an NLP course, as one functional JAX and Flax library.

    run = jaxnlp.load_run("runs/mine")       # a trained model
    bert = jaxnlp.load_pretrained("FOLDER")  # weights of Hugging Face Transformers or sentence-transformers
    run.predict(["A gripping film."])        # a method of its task: predict, generate, embed, ask, translate, ...
    run = jaxnlp.train("gpt_python_docs", "runs/mine")               # trains a recipe; the command is jaxnlp train
    config = jaxnlp.recipe("gpt_python_docs", total_steps=100)       # a recipe's config, with changes, to train

`jaxnlp.ops` has pure functions, `jaxnlp.nn` layers, `jaxnlp.models` architectures, `jaxnlp.tasks` losses, evaluators
and commands, `jaxnlp.decoding` sampling and beam search. Modules are imported when they are first used.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jaxnlp import decoding, models, nn, ops, tasks
    from jaxnlp.runs import load, load_pretrained, load_run
    from jaxnlp.training import recipe, train

    __version__: str

__all__ = [
    "__version__",
    "decoding",
    "load",
    "load_pretrained",
    "load_run",
    "models",
    "nn",
    "ops",
    "recipe",
    "tasks",
    "train",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return importlib.import_module("importlib.metadata").version("jaxnlp")
    if name in ("load", "load_pretrained", "load_run"):
        return getattr(importlib.import_module("jaxnlp.runs"), name)
    if name in ("recipe", "train"):
        return getattr(importlib.import_module("jaxnlp.training"), name)
    if name in __all__:
        return importlib.import_module(f"jaxnlp.{name}")
    raise AttributeError(f"module 'jaxnlp' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
