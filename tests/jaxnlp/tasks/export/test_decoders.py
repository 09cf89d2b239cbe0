"""Texts that a reader of an exported folder generates, token by token, are those of the library."""

import numpy as np
import pytest

from jaxnlp.tasks.export import ExportCommand
from jaxnlp.tasks.export.loader import load
from jaxnlp.tasks.translation.search import SearchOptions, Translator
from jaxnlp.text.subwords import END, START
from tests.jaxnlp.tasks.export.models import trained_of


def functions_of(name, folder):
    ExportCommand(folder / "out", format="jax")(trained_of(name))
    return load(folder / "out")


def most_probable(outputs):
    return np.asarray(outputs["logits"][:, -1:]).argmax(axis=-1).astype(np.int32)


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["gpt", "perceiver", "lstm"])
def test_a_language_model_continues_texts(tmp_path, name):
    trained, functions = trained_of(name), functions_of(name, tmp_path)
    prompts = ["abca", "hgfb"]
    outputs = functions["read"](tokens=np.stack([trained.processor.encode(text) for text in prompts]))
    written = [most_probable(outputs)]
    for _ in range(7):
        outputs = functions["step"](tokens=written[-1], cache=outputs["cache"])
        written.append(most_probable(outputs))
    rows = np.concatenate(written, axis=1)
    found = [text + trained.processor.decode(row) for text, row in zip(prompts, rows, strict=True)]
    assert found == trained.generate(prompts, max_new_tokens=8, temperature=0.0)


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["attention", "transformer"])
def test_a_translator_writes_targets(tmp_path, name):
    trained, functions = trained_of(name), functions_of(name, tmp_path)
    sources = ["one two three", "five"]
    outputs = functions["encode"](**trained.processor(sources))
    token, written = np.full((2, 1), START, np.int32), []
    for _ in range(10):
        outputs = functions["step"](tokens=token, cache=outputs["cache"])
        token = most_probable(outputs)
        written.append(token)
    rows = np.concatenate(written, axis=1)
    expected, _ = Translator.of(trained.model)(
        trained.inference_params, *trained.processor(sources).values(), SearchOptions(num_beams=1, length_penalty=0.0)
    )
    for row, ids in zip(rows, expected[:, 0], strict=True):
        length = min(len(ids), len(row), *(np.flatnonzero(ids == END) + 1))
        assert row[:length].tolist() == ids[:length].tolist()
