"""The core knows no family: it names none, and asks no object what it is or has."""

import ast
import builtins
import dataclasses
import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import data
import jaxnlp.convert
import jaxnlp.corpus
import jaxnlp.models
import jaxnlp.tasks
import jaxnlp.text
from tests.seam import images, tagger

ROOT = Path(__file__).resolve().parents[2]
OURS = ("jaxnlp", "data", "train", "configs", "benchmarks", "tests")
CORE = (
    "jaxnlp/*.py",
    "jaxnlp/models/__init__.py",
    "jaxnlp/tasks/__init__.py",
    "data/__init__.py",
    "configs/__init__.py",
    "train/*.py",
    "train/[!cr]*/*.py",
    "train/run/*.py",
)
"""What trains, scores and loads every family."""
TOOLS = ("jaxnlp/cli/*.py", "jaxnlp/pages/*.py", "jaxnlp/saving/*.py", "train/cli/*.py", "train/report/*.py")
"""They look at fields and values of any type."""


def files(places):
    """The files of these places, by their paths in the repository."""
    return sorted(path.relative_to(ROOT).as_posix() for place in places for path in ROOT.glob(place))


WORDS = {"seam", "bert", "gpt", "lstm", "perceiver", "synthesizer", "vocabulary"}
NO_FAMILY = {"pretrained", "pretrainederror", "unknowntokenerror"}
"""Classes of the library's packages whose names are words of every family."""
METRICS = {
    "accuracy",
    "bleu",
    "chrf",
    "exact_match",
    "f1",
    "las",
    "mean_score",
    "next_word_nll",
    "pearson",
    "perplexity",
    "positions_per_token",
    "roc_auc",
    "spearman",
    "uas",
}
"""Names of metrics that families declare, or parts of a name such as `macro_f1`: every run has only `loss`."""
MAY_NAME = {
    "train/parallel/rules.py": {"vocabulary"},  # the axis V, which data gives
    "jaxnlp/targets.py": {"classification"},  # Transformers' name of a problem; the core does not import it
}

# All public attributes of the bases: each is a part of the seam, for every family. What only some families have belongs
# in a base of their own, such as that of `jaxnlp.models.recurrent`.
PUBLIC = {
    jaxnlp.models.ModelConfig: (
        "section full_name usual only_if compute length_field max_length attends reads check build inputs "
        "initial_params frozen parameter architecture adopt"
    ),
    jaxnlp.tasks.Task: (
        "section full_name usual only_if model_types metrics check check_corpus objective "
        "evaluators commands methods exports from_pretrained"
    ),
    jaxnlp.corpus.DataConfig: (
        "section full_name usual only_if batch_size few_lengths num_workers length_field max_length needs parts joint "
        "places stateful check_steps load check_after in_format read_file read_files processor_fields"
    ),
}

# Expressions that look like a question for the family and are none, with the reason.
MAY_ASK = {
    ("data/__init__.py", "isinstance(processor, kind)"): "the data set says which kind it needs",
    ("jaxnlp/tasks/__init__.py", "issubclass(value, Task)"): "finds the tasks among all that a module holds",
    ("jaxnlp/corpus.py", "hasattr(self.train, 'with_workers')"): "a data set may have batches of another kind",
    ("jaxnlp/config.py", "isinstance(value, option)"): "the type that a field declares",
    ("jaxnlp/config.py", "isinstance(bound, Within)"): "what a field declares of its numbers",
    ("jaxnlp/models/__init__.py", "isinstance(self.compute, kind)"): "the type that a field declares",
    ("jaxnlp/training.py", "isinstance(config, import_training('train.config').TrainConfig)"): "what a user gives",
    ("train/compile_ahead.py", "hasattr(x, 'dtype')"): "arguments of a jitted function are arrays, or static",
    ("train/config.py", "isinstance(getattr(config, head), Choice)"): "a name may choose the kind",
    ("train/logs/json_lines.py", "type(row.get(name)) is not kind"): "a field of a line of JSON",
    ("train/logs/log.py", "isinstance(section.content, MarkedText)"): "all kinds of sections",
    ("train/parallel/mesh.py", "isinstance(tree, TrainState)"): "the loop's own state, or only parameters",
    ("train/parallel/pmap.py", "isinstance(tree, TrainState)"): "the loop's own state, or only parameters",
    ("train/parallel/mesh.py", "isinstance(x, Placement)"): "a placement is a leaf of its tree",
    ("train/parallel/rules.py", "isinstance(x, Placement)"): "a placement is a leaf of its tree",
    ("train/parallel/rows.py", "isinstance(batch, LazyBatch)"): "both kinds of batches",
    ("train/step.py", "isinstance(batch, LazyBatch)"): "a lazy batch is no batch of several parts",
    ("train/recipes.py", "isinstance(config, TrainConfig)"): "what a user's recipe returns",
    ("train/run/folder.py", "hasattr(os, 'sched_getaffinity')"): "the operating system",
}


def families():
    """Words that name a family, in lower case: its classes, in the library and in this folder, and `WORDS`."""
    modules = [
        importlib.import_module(module.name)
        for package in (jaxnlp.models, jaxnlp.tasks, jaxnlp.text, jaxnlp.convert, data)
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}.")
    ]
    kinds = [*derived(jaxnlp.models.ModelConfig), *derived(jaxnlp.tasks.Task), *derived(data.DataConfig)]
    kinds = [kind for kind in kinds if kind.__module__.partition(".")[0] in ("jaxnlp", "data")]  # not other tests'
    for module in (images, tagger, *(m for m in modules if m.__name__.startswith(("jaxnlp.text.", "jaxnlp.convert.")))):
        kinds += [kind for kind in vars(module).values() if getattr(kind, "__module__", "") == module.__name__]
    names = {kind.__name__.lower() for kind in kinds if isinstance(kind, type) and not kind.__name__.startswith("_")}
    return WORDS | names - NO_FAMILY


def derived(base):
    """All classes that derive from a base."""
    return [kind for child in base.__subclasses__() for kind in (child, *derived(child))]


def named(tree):
    """The families that code names; comments and docstrings may give examples."""
    for node in ast.walk(tree):
        if isinstance(getattr(node, "body", None), list):
            node.body = [child for child in node.body if not is_text(child)] or [ast.Pass()]
    code = ast.unparse(tree).lower()
    metrics = {word for word in METRICS if re.search(rf"(?<![a-z0-9]){word}(?![a-z0-9])", code)}
    return metrics | {word for word in families() if word in code}


def is_text(node):
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def probes(tree):
    """Expressions that ask what an object is or has, but for classes of Python and of other libraries."""
    others = set(vars(builtins))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            package = getattr(node, "module", None) or node.names[0].name
            if package.partition(".")[0] not in OURS:
                others |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}

    def is_ours(kind):
        if isinstance(kind, ast.Tuple):
            return any(map(is_ours, kind.elts))
        if isinstance(kind, ast.BinOp):
            return is_ours(kind.left) or is_ours(kind.right)
        while isinstance(kind, ast.Attribute):
            kind = kind.value
        return not (isinstance(kind, ast.Constant) or (isinstance(kind, ast.Name) and kind.id in others))

    def asks(node):
        match node:
            case ast.Call(func=ast.Name("hasattr")) | ast.Call(func=ast.Name("getattr"), args=[_, ast.Constant(), *_]):
                return True
            case ast.Call(func=ast.Name("isinstance" | "issubclass"), args=[_, kind]):
                return is_ours(kind)
            case ast.MatchClass(cls=kind):
                return is_ours(kind)
            case ast.Compare(ops=[ast.In() | ast.NotIn()], comparators=[ast.Call(func=ast.Name("dir" | "vars"))]):
                return True
            case ast.Compare(left=left, comparators=[right]):
                return is_type(left) != is_type(right) and is_ours(right)
            case (
                ast.ExceptHandler(type=kind)
                | ast.Call(func=ast.Name("suppress") | ast.Attribute(attr="suppress"), args=[kind])
            ):
                return kind is not None and "AttributeError" in names_in(kind)
        return False

    return {ast.unparse(node).partition("\n")[0] for node in ast.walk(tree) if asks(node)}


def names_in(node):
    return {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}


def is_type(node):
    """Whether it is `type(x)` or `x.__class__`."""
    match node:
        case ast.Call(func=ast.Name("type"), args=[_]) | ast.Attribute(attr="__class__"):
            return True
    return False


def public(base):
    """Public attributes of a class, and fields that have no value in it."""
    fields = {field.name for field in dataclasses.fields(base)} if dataclasses.is_dataclass(base) else set()
    return {name for name in {*dir(base), *fields} if not name.startswith("_")}


@pytest.mark.parametrize("base", PUBLIC, ids=lambda base: base.__name__)
def test_the_core_asks_of_a_family_only_what_is_listed(base):
    assert public(base) == set(PUBLIC[base].split())


def test_no_core_file_names_a_family():
    assert {file: names for file in files(CORE + TOOLS) if (names := named(parsed(file)))} == MAY_NAME


def test_no_core_file_asks_what_an_object_is_or_has():
    found = {(file, expression) for file in files(CORE) for expression in probes(parsed(file))}
    assert found == MAY_ASK.keys()


FAMILIES = ("jaxnlp/models/**/*.py", "jaxnlp/tasks/**/*.py", "data/**/*.py", "configs/**/*.py")
SHARDING = {"Mesh", "NamedSharding", "PartitionSpec", "all_gather", "axis_index", "axis_size", "make_mesh", "pmap"}
SHARDING |= {"pmean", "psum", "psum_scatter", "shard_map", "with_sharding_constraint"}


def sharding(tree):
    """The names that a program uses to share arrays among devices."""
    names = {getattr(node, name, None) for node in ast.walk(tree) for name in ("id", "attr", "name")}
    return names & SHARDING


def test_no_family_says_how_devices_share_its_arrays():
    assert {file: names for file in files(FAMILIES) if (names := sharding(parsed(file)))} == {}
    assert files(FAMILIES)


def test_code_that_shares_arrays_among_devices_would_be_found():
    code = "from jax.sharding import PartitionSpec\njax.lax.psum(x, 'data')"
    assert sharding(ast.parse(code)) == {"PartitionSpec", "psum"}
    assert sharding(parsed("train/parallel/mesh.py")) >= {"NamedSharding", "shard_map"}


def parsed(file):
    return ast.parse((ROOT / file).read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("from tests.seam.images import PatchConfig", {"seam", "patchconfig"}),
        ("if type(task).__name__ == 'Tagging': pass", {"tagging"}),
        ("BarImages(batch_size=16)", {"barimages"}),
        ("def is_masked(task):\n  return isinstance(task, MaskedLanguageModel)", {"maskedlanguagemodel"}),
        ("kind = {'bert': 3}", {"bert"}),
        ("rows = processor.vocabulary_size", {"vocabulary"}),
        ("from jaxnlp.text.words import WordVocabulary", {"wordvocabulary"}),
        ("from jaxnlp.convert.encoder_weights import EncoderWeights", {"encoderweights"}),
        ("isinstance(corpus.processor, TextClassifierProcessor)", {"textclassifierprocessor"}),
        ("evaluation.metrics['perplexity']", {"perplexity"}),
        ("scores.bleu_of(texts)", {"bleu"}),
        ("name.endswith('/accuracy')", {"accuracy"}),
        ("best = 'macro_f1'", {"f1"}),
        ("class Loss:\n  colour = '#f1262f'\n  metric = metrics['loss']", set()),
        ("'Such as BERT.'\ndef f():\n  'Such as Tagging.'\n  # of a GPT\n  return tags", set()),
    ],
)
def test_the_name_of_a_family_would_be_found(code, expected):
    assert expected <= (found := named(ast.parse(code)))
    assert bool(found) == bool(expected)


@pytest.mark.parametrize(
    "code",
    [
        "hasattr(task, 'beams')",
        "getattr(model, 'encoder', None)",
        "getattr(processor, 'size')",
        "from jaxnlp.models.gpt import GPTConfig\nisinstance(model, GPTConfig)",
        "from jaxnlp.tasks import Task\nissubclass(kind, Task)",
        "import jaxnlp.tasks\nisinstance(task, jaxnlp.tasks.Task)",
        "isinstance(tree, (dict, Tagging))",
        "isinstance(tree, int | Tagging)",
        "isinstance(value, kinds[0])",
        "class Own: pass\nisinstance(value, Own)",
        "type(task) is Tagging",
        "task.__class__ == Tagging",
        "match task:\n  case Tagging(l2=0.0): pass",
        "try:\n  task.beams()\nexcept AttributeError:\n  pass",
        "try:\n  task.beams()\nexcept (AttributeError, KeyError):\n  pass",
        "with contextlib.suppress(AttributeError):\n  task.beams()",
        "'beams' in dir(task)",
        "'beams' not in vars(task)",
    ],
)
def test_a_question_for_the_family_would_be_found(code):
    assert len(probes(ast.parse(code))) == 1


@pytest.mark.parametrize(
    "code",
    [
        "isinstance(value, int | float)",
        "isinstance(value, (list, tuple))",
        "import jax\nisinstance(leaf, jax.Array)",
        "from collections.abc import Mapping\nisinstance(batch, Mapping)",
        "getattr(config, name)",
        "type(value) is bool",
        "type(theirs) is type(mine)",
        "match value:\n  case int(): pass",
        "task.metrics(processor, split)",
    ],
)
def test_other_questions_are_not_meant(code):
    assert probes(ast.parse(code)) == set()
