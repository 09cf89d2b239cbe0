import ast
import functools
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef
OURS = ("jaxnlp", "data", "train", "configs", "benchmarks")

# Which of our modules a module may import: the longest prefix of its name decides. Everyone may import the leaves.
LEAVES = (
    "jaxnlp.typing",
    "jaxnlp.config",
    "jaxnlp.corpus",
    "jaxnlp.metric_kind",
    "jaxnlp.metrics",
    "jaxnlp.targets",
    "jaxnlp.public_names",
    "jaxnlp.text",
    "jaxnlp.images",
    "jaxnlp.input_files",
    "jaxnlp.inference",
    "jaxnlp.pages.content",
    "jaxnlp.saving.atomic_files",
    "jaxnlp.saving.checksums",
    "jaxnlp.saving.quiet_logging",
    "jaxnlp.saving.serialization",
)
LADDER = ("jaxnlp.ops", "jaxnlp.nn", "jaxnlp.models")
BELOW_TASKS = (*LEAVES, *LADDER, "jaxnlp.decoding", "jaxnlp.convert")
BELOW_RUNS = (*BELOW_TASKS, "jaxnlp.tasks", "jaxnlp.pages", "jaxnlp.saving")
ALLOWED = {
    "jaxnlp": (*BELOW_RUNS, "jaxnlp.runs", "jaxnlp.training"),  # lazily: tests/jaxnlp/test_init.py
    "jaxnlp.__main__": ("jaxnlp.cli",),
    "jaxnlp.training": ("jaxnlp", "jaxnlp.tasks", "jaxnlp.saving.quiet_logging"),
    "jaxnlp.typing": (),
    "jaxnlp.config": (),
    "jaxnlp.corpus": ("jaxnlp.config",),
    "jaxnlp.metric_kind": (),
    "jaxnlp.metrics": ("jaxnlp.typing",),
    "jaxnlp.targets": (),
    "jaxnlp.public_names": (),
    "jaxnlp.text": (
        *("jaxnlp.text", "jaxnlp.config", "jaxnlp.corpus", "jaxnlp.targets"),
        *("jaxnlp.input_files.text_files", "jaxnlp.input_files.json_objects"),
    ),
    "jaxnlp.images": (
        *("jaxnlp.images", "jaxnlp.targets", "jaxnlp.inference.arguments", "jaxnlp.input_files.web_addresses"),
    ),
    "jaxnlp.input_files": ("jaxnlp.input_files", "jaxnlp.corpus"),
    "jaxnlp.inference": ("jaxnlp.typing",),
    "jaxnlp.inference.batches": ("jaxnlp.typing", "jaxnlp.ops.devices"),
    "jaxnlp.inference.caches": ("jaxnlp.saving.atomic_files",),
    "jaxnlp.pages": (*LEAVES, "jaxnlp.pages"),
    "jaxnlp.pages.content": (),
    "jaxnlp.saving": LEAVES,
    "jaxnlp.saving.atomic_files": (),
    "jaxnlp.saving.quiet_logging": (),
    "jaxnlp.saving.serialization": ("jaxnlp.typing",),
    "jaxnlp.ops": (*LEAVES, *LADDER[:1]),
    "jaxnlp.nn": (*LEAVES, *LADDER[:2]),
    "jaxnlp.models": (*LEAVES, *LADDER),
    "jaxnlp.decoding": (*LEAVES, *LADDER, "jaxnlp.decoding"),
    "jaxnlp.convert": (*LEAVES, *LADDER, "jaxnlp.convert"),
    "jaxnlp.tasks": (*BELOW_TASKS, "jaxnlp.tasks", "jaxnlp.pages", "jaxnlp.cli.options"),  # LIKELY marks an option
    "jaxnlp.runs": BELOW_RUNS,
    "jaxnlp.coursework": (*BELOW_RUNS, "jaxnlp.coursework"),
    "jaxnlp.cli": (*BELOW_RUNS, "jaxnlp.runs", "jaxnlp.cli"),
    "jaxnlp.cli.interrupts": (),
    "jaxnlp.cli.programs": ("jaxnlp.cli.interrupts", "jaxnlp.cli.messages", "jaxnlp.training"),
    "jaxnlp.cli.messages": ("jaxnlp.cli.interrupts",),
    "jaxnlp.cli.options": ("jaxnlp.config", "jaxnlp.cli.messages", "jaxnlp.cli.suggestions"),
    "jaxnlp.cli.restart": (),
    "jaxnlp.cli.suggestions": (),
    "data": (
        "jaxnlp.text",
        "jaxnlp.targets",
        "jaxnlp.corpus",
        "jaxnlp.config",
        "jaxnlp.inference.caches",
        "jaxnlp.saving.atomic_files",
        "jaxnlp.saving.checksums",
        "jaxnlp.input_files",
        "jaxnlp.images",
        "data",
    ),
    "data.download": ("jaxnlp.inference.caches", "jaxnlp.cli", "data"),
    "data.invented_people": ("jaxnlp.saving.atomic_files", "jaxnlp.cli", "data"),
    "train": ("jaxnlp", "data", "train"),
    "train.recipes": ("train", "configs", "jaxnlp.cli.messages"),
    "configs": (
        "train.config",
        "train.optimizer",
        "jaxnlp.models",
        "jaxnlp.tasks",
        "jaxnlp.nn.compute",
        "jaxnlp.nn.recurrent",
        "data",
        "configs",
    ),
    "benchmarks": ("jaxnlp", "data", "train", "configs", "benchmarks"),
}

# Which of our modules a module may not import, although the table above allows the package that they are in: the core
# knows no family, and no data set.
FAMILIES = ("jaxnlp.models.", "jaxnlp.tasks.", "jaxnlp.text.", "jaxnlp.convert.", "jaxnlp.decoding.")
EXCLUDED = {
    "train": (*FAMILIES, "data."),
    "jaxnlp.runs": FAMILIES,
    "jaxnlp.__main__": FAMILIES,
    "jaxnlp.cli.verbs": FAMILIES,
    "jaxnlp.saving": FAMILIES,
    "jaxnlp.pages": FAMILIES,
    "jaxnlp.tasks": (),
}

# Which packages of others a module may not import.
FORBIDDEN = {
    "jaxnlp": ("torch", "transformers"),
    "jaxnlp.text": ("jax", "flax", "optax", "orbax", "chex"),
    "jaxnlp.ops": ("flax", "optax", "orbax"),
    "jaxnlp.corpus": ("jax", "flax", "optax", "orbax", "chex"),
    "jaxnlp.metric_kind": ("jax", "flax", "optax", "orbax", "chex"),
    "jaxnlp.pages.content": ("jax", "flax", "optax", "orbax", "chex"),
    "jaxnlp.targets": ("jax", "flax", "optax", "orbax", "chex"),
    "jaxnlp.input_files": ("jax", "flax", "optax", "orbax", "chex", "numpy"),
    "jaxnlp.images": ("jax", "flax", "optax", "orbax", "chex"),
    "jaxnlp.config": ("jax", "flax", "optax", "orbax", "chex"),
    "jaxnlp.cli.messages": ("jax", "flax", "optax", "orbax", "chex"),
    "jaxnlp.cli.options": ("jax", "flax", "optax", "orbax", "chex"),
    "jaxnlp.cli.programs": ("jax", "flax", "optax", "orbax", "chex"),
    "jaxnlp.training": ("jax", "flax", "optax", "orbax", "chex"),
    "data": ("jax", "flax", "optax", "orbax", "chex", "torch"),
    "train": ("torch", "transformers", "tensorboardX"),  # tensorboardX imports torch
    "configs": ("jax", "flax", "torch"),
}


def source_files(*packages):
    return [path.relative_to(ROOT) for package in packages for path in sorted((ROOT / package).rglob("*.py"))]


@functools.cache
def parsed(path):
    return ast.parse((ROOT / path).read_text(encoding="utf-8"))


def module_name(path):
    return ".".join(path.with_suffix("").parts).removesuffix(".__init__")


def is_module(name):
    path = ROOT.joinpath(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").is_file()


def imported_modules(tree, module, *, is_package=False):
    """Full names of all modules that a file imports, wherever in it, relative ones resolved."""
    package = module if is_package else module.rpartition(".")[0]
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*parents, *([node.module] if node.module else [])])
            # `from package import module` imports the module, `from module import name` does not.
            found |= {f"{base}.{alias.name}" if is_module(f"{base}.{alias.name}") else base for alias in node.names}
    return found


def belongs(name, packages):
    return any(name == package or name.startswith(package + ".") for package in packages)


def rules_of(table, module):
    """Those of all prefixes of the module's name, longest first."""
    parts = module.split(".")
    prefixes = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
    return [table[prefix] for prefix in prefixes if prefix in table]


def violations(tree, module, *, is_package=False):
    imported = imported_modules(tree, module, is_package=is_package)
    allowed = rules_of(ALLOWED, module)[0]
    excluded = rules_of(EXCLUDED, module)[:1]
    families = {name for name in imported if any(name.startswith(prefix) for rule in excluded for prefix in rule)}
    forbidden = {package for rule in rules_of(FORBIDDEN, module) for package in rule}
    ours = {name for name in imported if belongs(name, OURS) and not belongs(name, allowed)}
    return sorted(ours | families | {name for name in imported if belongs(name, forbidden)})


def test_modules_import_only_what_is_below_them():
    found = {
        str(path): broken
        for path in source_files(*OURS)
        if (broken := violations(parsed(path), module_name(path), is_package=path.name == "__init__.py"))
    }
    assert found == {}


@pytest.mark.parametrize(
    ("module", "statement", "expected"),
    [
        ("jaxnlp.ops.new", "from jaxnlp.nn.dropout import Dropout", ["jaxnlp.nn.dropout"]),
        ("jaxnlp.ops.new", "from jaxnlp.ops import masks\nfrom jaxnlp.typing import Array", []),
        ("jaxnlp.ops.new", "def f():\n  import flax.linen as nn", ["flax.linen"]),
        ("jaxnlp.nn.new", "from jaxnlp import models, typing", ["jaxnlp.models"]),
        ("jaxnlp.nn.new", "from ..models.gpt import GPT", ["jaxnlp.models.gpt"]),
        ("jaxnlp.nn.new", "from . import dropout\nfrom .cache import KVCache", []),
        ("jaxnlp.models.new", "import jaxnlp.decoding.generation", ["jaxnlp.decoding.generation"]),
        ("jaxnlp.models.new", "from jaxnlp.text.characters import CharacterVocabulary", []),
        ("jaxnlp.decoding.new", "from jaxnlp.convert import encoder_weights", ["jaxnlp.convert.encoder_weights"]),
        ("jaxnlp.text.new", "from jaxnlp.typing import Array\nimport jax", ["jax", "jaxnlp.typing"]),
        ("jaxnlp.saving.serialization", "from jaxnlp.models import ModelConfig", ["jaxnlp.models"]),
        ("jaxnlp.runs", "from train.config import TrainConfig", ["train.config"]),
        ("jaxnlp.cli.verbs", "import jaxnlp.runs, benchmarks, torch", ["benchmarks", "torch"]),
        ("jaxnlp", "from train.loop import fit", ["train.loop"]),
        ("data.new", "import jax.numpy as jnp\nfrom jaxnlp.text import characters", ["jax.numpy"]),
        ("data.new", "import jaxnlp.metrics, jaxlike", ["jaxnlp.metrics"]),
        ("configs.new", "from train.loop import fit\nfrom train.config import TrainConfig", ["train.loop"]),
        ("train.new", "import configs, benchmarks.x", ["benchmarks.x", "configs"]),
        ("train.recipes", "import configs, benchmarks.x", ["benchmarks.x"]),
        (
            "train.new",
            "from jaxnlp.models import ModelConfig\nfrom jaxnlp.tasks import Task\nfrom data import DataConfig",
            [],
        ),
        ("train.new", "from jaxnlp.models.gpt import GPTConfig", ["jaxnlp.models.gpt"]),
        ("train.new", "from data.names import NamesQuestions", ["data.names"]),
        ("train.new", "from jaxnlp.text.words import WordVocabulary", ["jaxnlp.text.words"]),
        ("train.new", "from jaxnlp.convert.torch_recurrent import to_torch", ["jaxnlp.convert.torch_recurrent"]),
        ("train.new", "from jaxnlp.decoding.beam import beam_search", ["jaxnlp.decoding.beam"]),
        ("train.report.new", "from jaxnlp.decoding import beam", ["jaxnlp.decoding.beam"]),
        ("jaxnlp.runs", "from jaxnlp.text.words import WordVocabulary", ["jaxnlp.text.words"]),
        ("jaxnlp.runs", "from jaxnlp.convert.encoder_weights import load", ["jaxnlp.convert.encoder_weights"]),
        ("jaxnlp.runs", "from jaxnlp.convert import pretrained_types", []),
        ("jaxnlp.cli.verbs", "from jaxnlp.decoding.generation import generate", ["jaxnlp.decoding.generation"]),
        ("jaxnlp.pages.new", "from jaxnlp.text.words import WordVocabulary", ["jaxnlp.text.words"]),
        ("jaxnlp.runs", "from jaxnlp.tasks.language_model import LanguageModel", ["jaxnlp.tasks.language_model"]),
        ("jaxnlp.models.new", "from jaxnlp.tasks import Task", ["jaxnlp.tasks"]),
        ("jaxnlp.tasks.new", "from jaxnlp.runs import load_run", ["jaxnlp.runs"]),
        ("jaxnlp.tasks.new", "from jaxnlp.cli.messages import table", ["jaxnlp.cli.messages"]),
    ],
)
def test_an_import_that_breaks_the_layering_would_be_found(module, statement, expected):
    assert violations(ast.parse(statement), module) == expected


def test_every_module_has_a_rule_of_its_room():
    rooms = {".".join(module_name(path).split(".")[:2]) for path in source_files("jaxnlp")}
    assert rooms <= ALLOWED.keys()


def test_every_source_file_that_defines_something_has_its_test_file():
    def has_none(path):
        defines_something = any(isinstance(node, FUNCTIONS | ast.ClassDef) for node in parsed(path).body)
        name = "test_main.py" if path.stem == "__main__" else f"test_{path.stem}.py"
        return defines_something and not (ROOT / "tests" / path.parent / name).is_file()

    paths = [path for path in source_files("jaxnlp", "data", "train") if path.name != "__init__.py"]
    assert [str(path) for path in paths if has_none(path)] == []


def our_classes():
    paths = source_files("jaxnlp", "data", "train")
    return {node.name: node for path in paths for node in parsed(path).body if isinstance(node, ast.ClassDef)}


def public(nodes, kind):
    return [node for node in nodes if isinstance(node, kind) and not node.name.startswith("_")]


def documents(owner, method, classes):
    """Whether a class, or one of ours that it derives from, says what a method does."""
    own = [node for node in owner.body if isinstance(node, FUNCTIONS) and node.name == method]
    bases = [classes[base.id] for base in owner.bases if isinstance(base, ast.Name) and base.id in classes]
    return any(map(ast.get_docstring, own)) or any(documents(base, method, classes) for base in bases)


def undocumented(tree, classes):
    """Public functions, classes and methods with no docstring, and the module itself when it holds anything."""
    missing = ["the module"] if tree.body and not ast.get_docstring(tree) else []
    missing += [node.name for node in public(tree.body, FUNCTIONS | ast.ClassDef) if not ast.get_docstring(node)]
    for owner in public(tree.body, ast.ClassDef):
        methods = public(owner.body, FUNCTIONS)
        missing += [f"{owner.name}.{node.name}" for node in methods if not documents(owner, node.name, classes)]
    return missing


def test_everything_public_has_a_docstring():
    paths, classes = source_files("jaxnlp", "data", "train"), our_classes()
    assert {str(path): names for path in paths if (names := undocumented(parsed(path), classes))} == {}


ARRAYS = re.compile(r"\b(Array|ndarray|ArrayLike)\b")


def without_shapes(tree):
    """Public functions and methods that take or return arrays, and whose docstring names no shape and no function."""
    owners = [tree, *public(tree.body, ast.ClassDef)]
    found = []
    for function in [node for owner in owners for node in public(owner.body, FUNCTIONS)]:
        arguments = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
        types = [argument.annotation for argument in arguments] + [function.returns]
        docstring = ast.get_docstring(function)
        if docstring and any(ARRAYS.search(ast.unparse(type)) for type in types if type):
            found += [] if re.search(r"\[[^\]]*\]|scalar|shape|`\w+`", docstring) else [function.name]
    return found


def test_functions_of_arrays_say_their_shapes():
    assert {str(path): names for path in source_files("jaxnlp") if (names := without_shapes(parsed(path)))} == {}


def test_a_missing_shape_would_be_found():
    source = """
def f(x: jax.Array): "Doubles x."
def g(x: jax.Array): "Doubles x [B, T]."
def h(n: int) -> np.ndarray: "N numbers."
def _i(x: jax.Array): "Doubles x."
class A:
    def method(self, x: Array | None): "Doubles x."
    def other(self, x: Array): "`method`, twice."
    def inherited(self, x: Array): pass
"""
    assert without_shapes(ast.parse(source)) == ["f", "h", "method"]


def test_a_missing_docstring_would_be_found():
    source = """
import os
def f(): pass
def g(): "Says."
def _h(): pass
class A:
    def method(self): "Says."
    def silent(self): pass
    def __init__(self): pass
class B(A):
    "Says."
    def method(self): pass
    @property
    def size(self): pass
    async def silent(self): pass
"""
    tree = ast.parse(source)
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    expected = ["the module", "f", "A", "A.silent", "B.size", "B.silent"]
    assert undocumented(tree, classes) == expected
