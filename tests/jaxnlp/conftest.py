"""Runs as training leaves them behind, for tests of what reads runs."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from rich.console import Console

from data.character_text import CharacterText
from jaxnlp.models import ModelConfig
from jaxnlp.models.bert import BertConfig
from jaxnlp.models.gpt import GPTConfig
from jaxnlp.models.text_tasks import TextTasksConfig
from jaxnlp.nn.compute import Compute
from jaxnlp.serialization import to_json
from jaxnlp.text.wordpiece import SPECIAL, WordPieceVocabulary
from jaxnlp.typing import Params
from train.checkpoint import Checkpoints
from train.config import TrainConfig
from train.loop import fit
from train.optimizer import OptimizerConfig
from train.step import TrainState, init_state


class FinishedRun(NamedTuple):
    """A run's folder, not to be changed, and what it was made of."""

    folder: Path
    config: TrainConfig
    state: TrainState


@pytest.fixture(scope="session")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> FinishedRun:
    """A run of two steps on eight devices, with a learning rate so high that the second makes the model worse."""
    folder = tmp_path_factory.mktemp("finished")
    words = np.random.default_rng(0).choice(["the", "tide", "eats", "that", "stone"], size=200)
    (folder / "text.txt").write_text(" ".join(words) + "\n")
    config = TrainConfig(
        recipe="tiny",
        data=CharacterText(
            source="text_file",
            path=str(folder / "text.txt"),
            batch_size=8,
            sequence_length=12,
            evaluation_batch_size=8,
        ),
        model=GPTConfig(
            num_layers=1,
            num_heads=2,
            width=8,
            context_length=20,
            use_bias=False,
            tie_embeddings=True,
            compute=Compute(scan_layers=True),
        ),
        optimizer=OptimizerConfig(learning_rate=1.0, schedule="constant", max_grad_norm=None),
        total_steps=2,
        evaluate_every_steps=1,
    )
    # Optax raises a Python float to an integer power, which strict promotion refuses.
    with jax.numpy_dtype_promotion("standard"):
        outcome = fit(config, folder / "run", console=Console(file=io.StringIO()))
    return FinishedRun(folder / "run", config, outcome.state)


@pytest.fixture(scope="session")
def pieces() -> WordPieceVocabulary:
    """A small vocabulary of pieces of words."""
    words = ["the", "cat", "sat", "##s", "on", "mat", "dog", "ate", "a", "big", "fish", "."]
    return WordPieceVocabulary.of_pieces([*SPECIAL, *words])


SaveRun = Callable[[Path, ModelConfig, WordPieceVocabulary], Params]


@pytest.fixture(scope="session")
def save_run() -> SaveRun:
    """Writes the folder of a run of one step; its parameters are larger than initial ones, so that all parts count."""

    def save(folder: Path, config: ModelConfig, vocabulary: WordPieceVocabulary) -> Params:
        model = config.build(vocabulary.size)
        params = jax.jit(model.init)(jax.random.key(0), jnp.zeros((1, 1), jnp.int32))["params"]
        leaves, tree = jax.tree.flatten(params)
        draw = np.random.default_rng(0)
        params = tree.unflatten([leaf + 0.3 * draw.standard_normal(leaf.shape, np.float32) for leaf in leaves])
        state = init_state(params, optax.sgd(0.1), jax.random.key(0), ema=False).replace(step=np.int32(1))
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(json.dumps({"model": to_json(config)}))
        (folder / "vocabulary.json").write_text(vocabulary.to_json())
        with Checkpoints(folder, keep=1) as checkpoints:
            checkpoints.save(state, data_state={}, config={}, train_seconds=0.0)
        return params

    return save


class TextTasksRun(NamedTuple):
    """A run's folder, not to be changed, and what it was made of."""

    folder: Path
    config: TextTasksConfig
    params: Params


@pytest.fixture(scope="session")
def text_tasks_run(tmp_path_factory: pytest.TempPathFactory, save_run: SaveRun, pieces: WordPieceVocabulary):
    """A run of all tasks."""
    folder = tmp_path_factory.mktemp("text_tasks") / "run"
    encoder = BertConfig(num_layers=2, num_heads=2, width=8, max_positions=40)
    config = TextTasksConfig(encoder=encoder, tasks=("sst", "cfimdb", "quora", "sts"), pooling="mean")
    return TextTasksRun(folder, config, save_run(folder, config, pieces))
