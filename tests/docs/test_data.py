"""docs/data.md names every data set that the code reads, and docs/data.sha256 has the checksums of its files."""

import hashlib
import os
import re
from pathlib import Path

import pytest

from train.recipes import load_recipe, recipe_names


@pytest.fixture
def folders(root):
    page = (root / "docs" / "data.md").read_text(encoding="utf-8")
    return set(re.findall(r"^\| `(\w+)` \|", page, re.M))


@pytest.fixture
def checksums(root):
    lines = (root / "docs" / "data.sha256").read_text(encoding="utf-8").splitlines()
    return {path: digest for digest, path in (line.split(maxsplit=1) for line in lines)}


def test_the_page_and_the_checksums_have_the_same_data_sets(folders, checksums):
    assert len(folders) >= 15
    assert {path.partition("/")[0] for path in checksums} == folders


def test_every_folder_that_the_code_looks_for_is_on_the_page(root, folders):
    sources = "".join(path.read_text(encoding="utf-8") for path in sorted((root / "data").glob("*.py")))
    looked_for = set(re.findall(r'Files\(\s*"(\w+)"', sources)) | set(re.findall(r'locate_folder\(\s*"(\w+)"', sources))
    assert {"afqmc", "cifar10", "cs224n_minbert", "text_classification", "ud_en_ewt"} <= looked_for
    assert looked_for <= folders


@pytest.mark.parametrize("recipe", recipe_names())
def test_the_data_of_a_recipe_is_on_the_page(folders, recipe):
    needs = load_recipe(recipe).data.needs
    assert needs in folders or needs == "" or needs.startswith("your ")


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


@pytest.mark.realdata
@pytest.mark.thorough
def test_the_files_have_these_checksums(checksums):
    place = Path(os.environ["JAXNLP_DATA"])
    for path, digest in checksums.items():
        assert hashlib.sha256((place / path).read_bytes()).hexdigest() == digest, path
