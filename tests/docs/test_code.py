"""The Python of the README and of the pages runs as it is written, on the runs that their own commands train."""

import os
import re
import subprocess
import sys

import numpy as np
import pytest

from tests.pages import PAGES, blocks_of

ELSEWHERE = {
    "README.md": "test_code.py",
    "attention.md": "test_attention.py",
    "bert.md": "test_bert.py",
    "coursework.md": "test_coursework.py",
    "export.md": "test_export.py",
    "language_models.md": "test_language_models.py",
    "your_own_model.md": "test_your_own_model.py",
}
"""Pages whose code another test runs, with arrays or files that the pages do not name."""

CODE = {page.name: "\n".join(block.text for block in blocks_of(page) if block.language == "python") for page in PAGES}


def named(name):
    """A page as a parameter; what trains or loads a model is thorough."""
    return pytest.param(name, marks=[pytest.mark.thorough] if "load_" in CODE[name] else [])


@pytest.mark.sweep(1)
@pytest.mark.parametrize("name", [named(name) for name, code in CODE.items() if code and name not in ELSEWHERE])
def test_the_python_of_a_page_runs(name, run_code):
    run_code(name)


def test_pages_name_the_command_and_not_the_modules_behind_it():
    old = re.compile(r"python\s+-m\s+(?:train|jaxnlp)\b|`train\.(?:sweep|compare|evaluate)`")
    assert [(page.name, found) for page in PAGES for found in old.findall(page.read_text(encoding="utf-8"))] == []


def test_the_other_pages_have_a_test_that_runs_them(root):
    for name, file in ELSEWHERE.items():
        assert CODE[name]
        assert name in (root / "tests" / "docs" / file).read_text(encoding="utf-8")


STEPS_BY_HAND = {"coming_from.md": ("## PyTorch", "## Hugging Face Transformers")}
"""Pages with a training step, and the headings before and after it. The losses are in `values`."""


@pytest.mark.parametrize("name", STEPS_BY_HAND)
def test_a_training_step_written_by_hand_lowers_its_loss(name, run_code):
    after, before = STEPS_BY_HAND[name]
    values = run_code(name, after, before)[0]["values"]
    assert values[-1] < 0.5 * values[0]


def test_there_is_no_other_training_step_written_by_hand(root):
    assert {name for name, code in CODE.items() if "apply_updates" in code} == {*STEPS_BY_HAND}
    sources = [path for folder in ("docs", "jaxnlp", "data", "configs") for path in (root / folder).rglob("*.*")]
    texts = {path.name: path.read_text(encoding="utf-8") for path in sources if path.suffix in (".py", ".ipynb")}
    assert [name for name, text in texts.items() if "apply_updates" in text] == []


@pytest.mark.thorough
def test_the_readme_trains_and_generates(run_code):
    found, printed = run_code("README.md")
    assert re.search(r"^Trained\(gpt_python_docs, .*, step 2; generate, perplexity, attend\)\nThe list", printed, re.M)
    assert found["logits"].shape[:2] == (1, 8)


@pytest.mark.thorough
def test_the_readme_is_a_script_that_runs_outside_the_checkout(tmp_path, root):
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "jaxnlp").symlink_to(root / "jaxnlp")  # as an editable installation
    script = tmp_path / "script.py"
    until_training, *_ = CODE["README.md"].partition("\nrun = jaxnlp.train(")
    script.write_text(f"{until_training}\nprint(config.recipe, jaxnlp.train)\n")
    places = os.environ | {"PYTHONPATH": str(tmp_path / "site")}
    done = subprocess.run([sys.executable, script], cwd=tmp_path, env=places, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("gpt_python_docs <function train at")


@pytest.mark.thorough
def test_the_pure_functions_give_what_the_page_says(run_code):
    found, printed = run_code("python.md", after="## Pure functions")
    assert printed.startswith("(2, 10, 10) (16, 8)\n")
    assert found["y"].shape == (2, 10, 4, 8)
    objective, nll, count = found["loss"]
    assert float(count) == 20.0
    assert np.isfinite(objective)
    assert np.isfinite(nll)
    assert nll != objective


@pytest.mark.thorough
def test_step_functions_of_ones_own_generate_what_reading_the_whole_text_gives(run_code):
    found, _ = run_code("python.md", after="## Modules")
    prompt, state = found["prompt"], np.zeros((1, 16), np.float32)
    logits, _ = found["read"](found["weights"], np.concatenate([prompt, found["continuation"]], axis=1), state, 8)
    np.testing.assert_array_equal(found["continuation"], logits.argmax(axis=-1)[:, 2:-1])
    text = np.concatenate([prompt, found["its_tokens"]], axis=1)
    logits = found["one_block"].apply({"params": found["its_params"]}, text)
    np.testing.assert_array_equal(found["its_tokens"], logits.argmax(axis=-1)[:, 2:-1])
    assert type(found["decoder"]).__module__ == "jaxnlp.decoding.generation"
