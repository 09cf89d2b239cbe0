"""CS224N, assignment 5: birth places, and the attention of a trained GPT or Synthesizer.

Source: Stanford CS224N, assignment 5, for the signatures and the files.
"""

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from jaxnlp.coursework import require_run
from jaxnlp.input_files.text_files import read_text_file
from jaxnlp.models.gpt import GPT, GPTConfig
from jaxnlp.models.perceiver import Perceiver
from jaxnlp.nn.transformer import unstacked
from jaxnlp.ops.checks import expect
from jaxnlp.saving.atomic_files import write_file
from jaxnlp.tasks import Trained
from jaxnlp.tasks.question_answering import QuestionAnswering
from jaxnlp.tasks.question_answering.commands import ask
from jaxnlp.text.raw_texts import one_line
from jaxnlp.typing import Array, Params

RECIPE = "names_finetune"


def evaluate_places(filepath: str | Path, predicted_places: Sequence[str]) -> tuple[float, float]:
    """The number of questions, and the number of right places; (0, 0) for a file without places.

    Args:
      filepath: a file of lines `question TAB place`, such as birth_dev.tsv, or of questions, such as
        birth_test_inputs.tsv.
      predicted_places: a place for each line.

    Raises: FileNotFoundError; ValueError for a line without a place if the first line has one, or when there are more
      or fewer places than lines.
    """
    rows = _rows(filepath)
    if len(predicted_places) != len(rows):
        raise ValueError(
            f"expected a place for each of the {len(rows)} lines of {filepath}, got {len(predicted_places)}"
        )
    if len(rows[0]) == 1:
        return 0.0, 0.0
    for number, row in enumerate(rows, 1):
        if len(row) != 2:
            raise ValueError(f"{filepath}, line {number}: expected question TAB place, got {len(row)} columns")
    right = sum(place == predicted for (_, place), predicted in zip(rows, predicted_places, strict=True))
    return float(len(rows)), float(right)


def evaluate(run: Trained, eval_corpus_path: str | Path, outputs_path: str | Path) -> tuple[float, float]:
    """Answers the questions of a file, writes one place a line, and returns the result of `evaluate_places`.

    Args:
      run: a model of questions and places.
      eval_corpus_path: as `filepath` in `evaluate_places`.
      outputs_path: the prediction file.

    Raises: ValueError for a run of another task, and for a question that the model cannot read; FileNotFoundError.
    """
    run = require_run(run, QuestionAnswering, RECIPE)
    places = [one_line(place) for place in ask(run, [question for question, *_ in _rows(eval_corpus_path)])]
    write_file(Path(outputs_path).expanduser(), "".join(f"{place}\n" for place in places).encode())
    return evaluate_places(eval_corpus_path, places)


def attention(run: Trained, x: Array, layer: int = 0) -> Array:
    """The output of a layer's attention, [B, T, D]: the assignment's CausalSelfAttention or SynthesizerAttention.

    Args:
      run: a GPT or a Synthesizer.
      x: the input of the attention, [B, T, D]; T is at most the context length.
      layer: index of the block.

    Raises: ValueError for another model, another shape, or a layer that the model does not have.
    """
    run = require_run(run, QuestionAnswering, RECIPE)
    model: Any = run.model
    if not isinstance(model, GPT) or isinstance(model, Perceiver):
        raise ValueError(f"expected a GPT or a Synthesizer, got a {type(model).__name__}")
    config = model.config
    if not 0 <= layer < config.num_layers:
        raise ValueError(f"layer must be from 0 to {config.num_layers - 1}, got {layer}")
    fits = jnp.ndim(x) == 3 and x.shape[1] <= config.context_length and x.shape[2] == config.width
    expect(fits, f"x [B, T, D] with T at most {config.context_length} and D = {config.width}", x=x)
    return _attention(config, unstacked(run.params)[f"block_{layer}"]["attention"], x)


@functools.partial(jax.jit, static_argnums=0)
def _attention(config: GPTConfig, params: Params, x: Array) -> Array:
    mixer, _, _ = config.layers(config.compute)
    output, _ = mixer().apply({"params": params}, x, deterministic=True)
    return output


def _rows(path: str | Path) -> list[list[str]]:
    """The columns of each line of a file."""
    lines = read_text_file(Path(path).expanduser()).removesuffix("\n").split("\n")
    return [line.strip().split("\t") for line in lines]
