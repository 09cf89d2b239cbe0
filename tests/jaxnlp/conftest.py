"""The folder of a trained run, for tests of reading runs."""

import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
import pytest
from rich.console import Console

from data.character_text import CharacterText
from jaxnlp.models.gpt import GPTConfig
from jaxnlp.nn.compute import TransformerCompute
from jaxnlp.tasks.language_model import LanguageModel
from train.config import TrainConfig
from train.loop import fit
from train.optimizer import AdamW
from train.optimizer.schedules import Constant
from train.step import TrainState


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
            compute=TransformerCompute(scan_layers=True),
        ),
        task=LanguageModel(),
        optimizer=AdamW(learning_rate=3.0, max_grad_norm=None, schedule=Constant()),
        total_steps=2,
        evaluate_every_steps=1,
        seed=1,
    )
    # Optax raises a Python float to an integer power, which strict promotion refuses.
    with jax.numpy_dtype_promotion("standard"):
        outcome = fit(config, folder / "run", console=Console(file=io.StringIO()))
    return FinishedRun(folder / "run", config, outcome.state)


@pytest.fixture
def on_standard_input(monkeypatch: pytest.MonkeyPatch) -> Callable[[bytes], None]:
    """Puts bytes there."""
    return lambda content: monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
