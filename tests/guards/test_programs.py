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

from jaxnlp.ops.devices import compile_for
from train.config import update
from train.programs.hlo import lowered_counts
from train.recipes import load_recipe, recipe_names
from train.run.begin import begin
from train.run.setup import set_up

STORED = Path(__file__).with_name("programs.json")
WRITE = "JAXNLP_WRITE_GUARDS"
GROWTH = 1.05
JAX = ".".join(map(str, jax.__version_info__[:2]))
QUICK = ("additions", "gpt_python_docs", "small_grammar_tagger")
"""Recipes that `make test` lowers, in about a second each."""
WITH_TEXT = ("gpt2_small",)
"""Recipes that are lowered with a text of the tests, and with few tokens, in place of the user's text."""


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
    """A case for each recipe that starts without pretrained weights, and without a file of the user's but a text."""
    for name in recipe_names():
        config = load_recipe(name)
        users = config.data.needs.startswith("your")
        if config.init_from is None and (name in WITH_TEXT or not users):
            marks = [] if name in QUICK else [pytest.mark.thorough]
            real = [pytest.mark.realdata] if config.data.needs and not users else []
            yield pytest.param(config, id=name, marks=marks + real)


RECIPES = list(recipes())


@pytest.mark.parametrize("config", RECIPES)
def test_no_step_grows_unnoticed(config, tmp_path):
    if config.recipe in WITH_TEXT:
        text = tmp_path / "text.txt"
        text.write_text(" ".join(f"{n * 7_919 % 1_000_003}" for n in range(4_000)))
        config = update(config, **{"data.path": text, "data.vocabulary_size": 300})
    found = counts_of(config)
    version, stored = json.loads(STORED.read_text()) if STORED.exists() else (JAX, {})
    if os.environ.get(WRITE) == "1":
        STORED.write_text(dumped(stored | {config.recipe: found}))
        return
    expected = stored[config.recipe]
    assert found["programs"] <= expected["programs"]
    if version != JAX:
        pytest.skip(
            f"operations and products are stored for JAX {version}, and this is {JAX}: to hold them, run python -m "
            "tests.guards.test_programs --write at the commit before a change"
        )
    grown = {name: count for name, count in found.items() if count > expected[name] * GROWTH}
    assert not grown, f"stored: {expected}; if this is meant, run python -m tests.guards.test_programs --write"


def test_every_recipe_has_stored_counts_and_no_other():
    assert json.loads(STORED.read_text())[1].keys() == {case.id for case in RECIPES}


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
