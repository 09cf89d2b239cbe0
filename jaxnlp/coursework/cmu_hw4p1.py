"""CMU 11-785, homework 4 part 1: the next words of windows and prompts, by a recurrent language model.

Source: CMU 11-785 Introduction to Deep Learning, homework 4 part 1, for the signatures and the fixtures.
"""

from typing import Any

import jax
import numpy as np

from jaxnlp.coursework import require_run
from jaxnlp.decoding.generation import decoder_of, generate
from jaxnlp.decoding.rows import jitted_by_rows
from jaxnlp.decoding.sampling import Sampling
from jaxnlp.ops.checks import expect_tokens
from jaxnlp.tasks import Trained
from jaxnlp.tasks.language_model import RecurrentLanguageModel

RECIPE = "lstm_lm_hw4"


def prediction(inp: np.ndarray, model: Trained) -> np.ndarray:
    """Logits of the word that follows each window, [N, V] float32.

    Args:
      inp: ids of words [N, T] int, as in the array `inp` of `fixtures/prediction.npz`.
      model: the run.

    Raises: ValueError for a run of another task, another shape or type, or ids outside the vocabulary.
    """
    run = require_run(model, RecurrentLanguageModel, RECIPE)
    windows = np.asarray(inp)
    expect_tokens(windows, run.processor.size, "inp")
    network: Any = run.model
    return jitted_by_rows(network.predict)(run.params, windows)


def generation(inp: np.ndarray, forward: int, model: Trained) -> np.ndarray:
    """The most probable continuation of each prompt, word by word, [N, forward] int32.

    Args:
      inp: ids of words [N, T] int, as in `fixtures/generation.npy`.
      forward: number of new words.
      model: the run.

    Raises: ValueError as `prediction`, and for a `forward` below 1.
    """
    run = require_run(model, RecurrentLanguageModel, RECIPE)
    prompts = np.asarray(inp)
    expect_tokens(prompts, run.processor.size, "inp")
    columns = generate(
        decoder_of(run.model),
        run.params,
        prompts.astype(np.int32),
        max_new_tokens=forward,
        key=jax.random.key(0),  # not used: nothing is sampled
        sampling=Sampling(temperature=0.0),
    )
    return np.stack(list(columns), axis=1)
