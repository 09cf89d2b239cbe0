"""Quick compilation for all tests here, and a run that training left behind, for what reads runs."""

import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
import pytest
from rich.console import Console

from data.character_text import CharacterText
from jaxnlp.models.gpt import GPTConfig
from train.config import TrainConfig
from train.loop import fit
from train.optimizer import OptimizerConfig
from train.step import TrainState


@pytest.fixture(scope="session")
def compiled_programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of compiled programs."""
    return tmp_path_factory.mktemp("compiled")


@pytest.fixture(scope="module", autouse=True)
def quick_compilation(compiled_programs: Path) -> Iterator[None]:
    """Programs that several tests compile are compiled once, and none is optimised: they run for milliseconds.

    With JAXNLP_TEST_OPTIMIZED=1 in the environment they are optimised, as users' are: see `make test-optimized`.
    """
    settings = {
        "jax_compilation_cache_dir": str(compiled_programs),
        "jax_persistent_cache_min_compile_time_secs": 0.0,
        "jax_disable_most_optimizations": os.environ.get("JAXNLP_TEST_OPTIMIZED") != "1",
    }
    before = {name: jax.config.values[name] for name in settings}
    for name, value in settings.items():
        jax.config.update(name, value)
    yield
    for name, value in before.items():
        jax.config.update(name, value)


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
            num_layers=1, num_heads=2, width=8, context_length=20, use_bias=False, tie_embeddings=True, scan_layers=True
        ),
        optimizer=OptimizerConfig(learning_rate=1.0, schedule="constant", clip_norm=None),
        total_steps=2,
        evaluate_every_steps=1,
    )
    # Optax raises a Python float to an integer power, which strict promotion refuses.
    with jax.numpy_dtype_promotion("standard"):
        outcome = fit(config, folder / "run", console=Console(file=io.StringIO()))
    return FinishedRun(folder / "run", config, outcome.state)
