import dataclasses
import importlib
import json
import re
import sys
import types
from pathlib import Path

import jax
import pytest
from flax.traverse_util import flatten_dict

import configs
from data.images import Images
from data.readers.labelled_data_sets import LABELLED
from data.readers.labelled_texts import PARTS
from data.tagged_sentences import TaggedSentences
from data.text_table import TextTable
from data.texts_of_table import TextsOfTable
from data.treebank import Treebank
from jaxnlp.images.processor import ImageProcessor
from jaxnlp.saving.serialization import from_json, to_json
from jaxnlp.targets import OneClass
from jaxnlp.tasks.language_model import LanguageModel
from jaxnlp.text.classifier_processor import TextClassifierProcessor, TextPart
from jaxnlp.text.parser_processor import ParserProcessor
from jaxnlp.text.tagger_processor import TaggerProcessor
from jaxnlp.text.word_inputs import WordInputs
from jaxnlp.text.wordpiece import SPECIAL, WordPieceVocabulary
from train.cli.command_line import RunOptions, parse
from train.config import TrainConfig, update
from train.recipes import UnknownRecipeError, load_recipe, recipe_names, recipe_of, show_recipes
from train.run.init_from import begin
from train.run.setup import set_up

FILES = sorted(Path(configs.__file__).parent.glob("*.py"))
RECIPES = [path.stem for path in FILES if path.stem != "__init__"]


def test_all_recipes_are_found_by_their_file_name():
    assert len(RECIPES) >= 4
    assert recipe_names() == RECIPES


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gpt_python_doc", "did you mean gpt_python_docs"),
        ("gpt_shakespear", "did you mean gpt_shakespeare or "),
        ("xyz", f"the recipes are {', '.join(RECIPES)}"),
        ("../configs/gpt_python_docs", "unknown recipe"),
        ("__init__", "unknown recipe"),
        ("FOLDER/nothing.py", "does not exist"),
        ("FOLDER/empty.py", "empty.py must define get_config"),
        ("~/other.py", "other.py must define get_config"),
        ("FOLDER/my.own.py", "my.own.py has a dot before .py, .*; rename the file"),
        ("FOLDER/of_a_dict.py", "of_a_dict.py: expected a config, .*; get_config returns dict"),
        ("FOLDER", "is a folder, not a recipe; jaxnlp train --resume .* continues a run"),
        ("FOLDER/train.py", "train.py has the name of another module, .*; rename the file"),
        ("FOLDER/data.py", "data.py has the name of another module, .*; rename the file"),
        ("FOLDER/numpy.py", "numpy.py has the name of another module, .*; rename the file"),
    ],
)
def test_a_recipe_that_there_is_not_is_refused_and_hides_no_module(tmp_path, monkeypatch, name, message):
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr("train.recipes._given", {})
    monkeypatch.setenv("HOME", str(tmp_path))
    for module in ("train", "data", "numpy"):
        (tmp_path / f"{module}.py").write_text("raise SystemExit")
    for module in ("empty", "other", "my.own"):
        (tmp_path / f"{module}.py").write_text("")
    (tmp_path / "of_a_dict.py").write_text("get_config = dict")
    with pytest.raises(UnknownRecipeError, match=message):
        load_recipe(name.replace("FOLDER", str(tmp_path)))
    assert str(tmp_path) not in sys.path[:-1]


def test_a_file_that_has_changed_is_read_again_and_hides_no_recipe(tmp_path, monkeypatch):
    """In a notebook all calls are of one process."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr("train.recipes._given", {})
    file = tmp_path / "text_cnn.py"

    def own(steps):
        file.write_text(
            f"from configs import names_pretrain\nfrom train.config import update\n\n\ndef get_config():\n"
            f"    return update(names_pretrain.get_config(), total_steps={steps})\n"
        )
        return load_recipe(str(file))

    try:
        assert [own(steps).total_steps for steps in (3, 1_000_000)] == [3, 1_000_000]
        library = importlib.import_module("configs.text_cnn").get_config()
        assert load_recipe("text_cnn") == dataclasses.replace(library, recipe="text_cnn")
        assert recipe_of(own(50)).total_steps == 50
    finally:
        sys.modules.pop("text_cnn", None)


def test_the_list_says_which_data_each_recipe_needs(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    assert show_recipes(["gpt", "--seed", "1"], "prog") is None
    assert show_recipes(["--help"], "prog lr-find", "Suggests a learning rate.") == 0
    assert capsys.readouterr().out.splitlines()[2] == "Suggests a learning rate."
    assert show_recipes(["--list"], "prog") == 0
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines() if line.startswith("  ")}
    assert [*lines] == RECIPES
    needs = {name: line.rpartition(" Data: ")[2] for name, line in lines.items()}
    assert (needs["gpt_python_docs"], needs["vit_cifar10"]) == ("none.", "cifar10.")
    assert (needs["bert_sst"], needs["bert_classify"]) == (
        "cs224n_minbert, pretrained weights.",
        "your table, pretrained weights.",
    )


@pytest.mark.parametrize("name", RECIPES)
def test_recipe_names_itself_and_reads_back_equal_from_json(name):
    config = load_recipe(name)
    assert config.recipe == name
    assert from_json(json.loads(json.dumps(to_json(config))), TrainConfig) == config


@pytest.mark.sweep(1)
@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_names_its_source_cost_expectation_and_command(name):
    docstring = importlib.import_module(f"configs.{name}").__doc__
    assert re.match(r"[A-Z].*\.$", docstring.splitlines()[0])
    for heading in ("Source", "Cost", "Expect", "Command"):
        assert re.search(rf"^{heading}: \S", docstring, re.MULTILINE), heading
    command = re.search(r"^Command: jaxnlp train (.*(?:\n  .*)*)", docstring, re.MULTILINE)[1].split()
    config, options = parse(command, RunOptions(), program="jaxnlp train")
    assert config.recipe == command[0] == name
    assert options.workdir.parts[0] == "runs"


KNOWN_DATA = [
    name
    for name in RECIPES
    if hasattr(data := load_recipe(name).data, "path")
    and getattr(data, "source", getattr(data, "data_set", None))
    not in (None, "table", "text_file", "files", "tiny_shakespeare")
]


@pytest.mark.parametrize("name", KNOWN_DATA)
def test_a_recipe_of_known_data_that_is_given_a_file_says_how_to_use_it(name, tmp_path):
    mine = tmp_path / "mine.csv"
    mine.write_text("text,label\ngood,1\n")
    own = r"for your own \w+, (set --data\.source (table|text_file|files)\b|use the recipe translation_text_files)"
    remedy = rf"{own}|use invented people: --data\.source invented"
    with pytest.raises((ValueError, OSError), match=remedy) as caught:
        update(load_recipe(name), **{"data.path": str(mine)}).data.load(0)
    assert str(mine) in str(caught.value)


@pytest.mark.parametrize("pairs", ["together", "apart"])
@pytest.mark.parametrize("predict", ["class", "classes", "number"])
def test_a_table_of_pairs_is_read_as_its_page_says(tmp_path, pairs, predict):
    """docs/classification.md; it changes the best metric and label smoothing for numbers."""
    table = tmp_path / "pairs.csv"
    table.write_text("text,pair,label\n" + "the cat,cat,1\nmat,the mat,2\n" * 20)
    numbers = {"best_metric": "pearson", "task.label_smoothing": 0.0} if predict == "number" else {}
    data = {"path": str(table), "pair": "pair", "pairs": pairs, "predict": predict, "vocabulary_size": 20}
    changed = {f"data.{name}": value for name, value in data.items()} | numbers
    config = update(load_recipe("bert_classify"), init_from=None, **{"model.encoder.num_layers": 1}, **changed)
    setup = set_up(begin(config))
    assert setup.corpus.processor.apart is (pairs == "apart")
    assert setup.abstract_state


OF_EACH_MODEL = {type(load_recipe(name).model): name for name in reversed(RECIPES)}.values()
"""The first recipe of each class of models."""


@pytest.mark.sweep(8)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.thorough] * (name not in OF_EACH_MODEL)) for name in RECIPES]
)
def test_a_recipe_builds_a_model_that_fits_its_data_and_describes_every_parameter(name):
    config = load_recipe(name)
    tokens = types.SimpleNamespace(size=65)
    processor = types.SimpleNamespace(size=65, vocabulary=tokens, source=tokens, target=tokens)
    if isinstance(config.data, Images):
        processor = ImageProcessor(16, 3, (0.5,) * 3, (0.5,) * 3, ("cat", "dog"))
    elif isinstance(config.data, TextTable) and not isinstance(config.data, TextsOfTable):
        data = config.data
        vocabulary, two = WordPieceVocabulary.of_pieces(SPECIAL), OneClass(("no", "yes"))
        files = {name: LABELLED[PARTS[name]] for name in data.parts} or {"": LABELLED.get(data.source)}
        parts = tuple(
            (
                name,
                TextPart(file.targets or two, len(file.columns.texts) if file.columns else 1)
                if file
                else TextPart(two),
            )
            for name, file in files.items()
        )
        processor = TextClassifierProcessor(vocabulary, data.max_length, parts, data.pairs)
        config.model.check(processor)
    elif isinstance(config.data, Treebank):
        pieces = WordPieceVocabulary.of_pieces(SPECIAL) if getattr(config.model, "bert", False) else None
        words = WordInputs((), (), pieces, max_length=config.data.max_length, max_pieces=config.data.max_pieces)
        processor = ParserProcessor(words, ("NOUN", "VERB"), ("root", "nsubj"), config.data.system, config.data.tags)
        config.model.check(processor)
    elif isinstance(config.data, TaggedSentences):
        pieces = WordPieceVocabulary.of_pieces(SPECIAL) if config.model.bert else None
        words = WordInputs((), (), pieces, max_length=config.data.max_length, max_pieces=config.data.max_pieces)
        processor = TaggerProcessor(words, ("O", "S-PER"), "bioes")
        config.model.check(processor)
    model, inputs = config.model.build(processor), config.model.inputs(processor)
    outputs, variables = jax.eval_shape(model.init_with_output, jax.random.key(0), *inputs)
    for path in flatten_dict(variables["params"]):
        config.model.parameter(path)  # an unknown one is a KeyError
    if isinstance(config.task, LanguageModel):
        tokens = jax.ShapeDtypeStruct((config.data.batch_size, config.data.max_length), "int32")
        outputs = jax.eval_shape(model.apply, variables, tokens)
        assert outputs.shape == (*tokens.shape, 65)
    assert config.checkpoint_every_steps <= config.total_steps
