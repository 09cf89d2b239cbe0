"""docs/data.md says of every data set what data/data_sets.toml says, and which recipes read it."""

import os
import re
from pathlib import Path

import pytest

from data.data_sets import DATA_SETS
from data.download import digest_of
from train.recipes import load_recipe, recipe_names


def row(data_set, recipes):
    """A data set's row of the page's table."""
    users = ", ".join(f"`{recipe}`" for recipe in recipes) or "-"
    get = f"`jaxnlp download {data_set.name}`" if data_set.remote else "by hand"
    source = f"[{data_set.title}]({data_set.page})"
    return f"| `{data_set.name}` | {users} | {source} | {data_set.licence} | {data_set.megabytes} MB | {get} |"


def line(data_set):
    """A data set's line in the page's list of files."""
    files = ", ".join(f"`{name}`" for name in data_set.checksums)
    return f"- `{data_set.name}`: {files}. {data_set.note}".rstrip()


@pytest.fixture(scope="module")
def page():
    return (Path(__file__).parents[2] / "docs" / "data.md").read_text(encoding="utf-8").splitlines()


@pytest.fixture(scope="module")
def recipes_of():
    needs = {recipe: load_recipe(recipe).data.needs for recipe in recipe_names()}
    return {name: [recipe for recipe, need in needs.items() if need == name] for name in (*DATA_SETS, "")}


@pytest.mark.parametrize("name", DATA_SETS)
def test_the_table_of_the_page_says_what_the_code_knows_of_a_data_set(page, recipes_of, name):
    assert row(DATA_SETS[name], recipes_of[name]) in page


@pytest.mark.parametrize("name", DATA_SETS)
def test_the_page_lists_the_files_of_a_data_set(page, name):
    assert line(DATA_SETS[name]) in page


def test_the_page_has_no_other_data_sets(page):
    rows = [text for text in page if text.startswith("| `")]
    lines = [text for text in page if text.startswith("- `")]
    assert len(rows) == len(lines) == len(DATA_SETS)


def test_the_page_names_the_recipes_that_need_no_data(page, recipes_of):
    (names,) = re.findall(r"Recipes without a data set: (.*?)\. ", " ".join(page))
    assert re.findall(r"`(\w+)`", names) == recipes_of[""]


def test_recipes_of_a_data_set_say_that_they_need_it():
    for recipe, folder in (
        ("conll_tagger", "conll2003_ner"),
        ("resume_tagger", "resume_ner_zh"),
        ("ud_tagger", "ud_en_ewt"),
        ("ud_parser", "ud_en_ewt"),
        ("vit_cifar10", "cifar10"),
        ("multi30k_lstm", "multi30k_en_de"),
    ):
        assert load_recipe(recipe).data.needs == folder
    for recipe in ("small_grammar_tagger", "small_grammar_parser", "number_words", "vit_digits"):
        assert load_recipe(recipe).data.needs == ""


@pytest.mark.parametrize("recipe", recipe_names())
def test_the_data_of_a_recipe_is_a_known_data_set_or_the_users_own(recipe):
    needs = load_recipe(recipe).data.needs
    assert needs in DATA_SETS or needs == "" or needs.startswith("your ")


def test_every_folder_that_the_code_looks_for_is_a_known_data_set(root):
    sources = "".join(path.read_text(encoding="utf-8") for path in sorted((root / "data").rglob("*.py")))
    looked_for = set(re.findall(r'Files\(\s*"(\w+)"', sources)) | set(re.findall(r'locate_folder\(\s*"(\w+)"', sources))
    assert {"afqmc", "cifar10", "cs224n_minbert", "text_classification", "ud_en_ewt"} <= looked_for
    assert looked_for <= DATA_SETS.keys()


@pytest.mark.realdata
@pytest.mark.thorough
@pytest.mark.parametrize("name", DATA_SETS)
def test_the_files_have_these_checksums(name):
    folder = Path(os.environ["JAXNLP_DATA"], name)
    for file, sha256 in DATA_SETS[name].checksums.items():
        assert digest_of(folder / file) == sha256, file
