"""Strict dtype promotion off (see below), compiled programs shared by all tests, and configs of runs that take a second.

Optax raises a Python float to an integer power in Adam's bias correction, which strict promotion refuses.
"""

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path

import flax.linen as nn
import jax
import numpy as np
import pytest

from data.character_text import CharacterText
from jaxnlp.models import ModelConfig
from jaxnlp.models.gpt import GPTConfig
from jaxnlp.nn.dropout import Dropout
from train.config import TrainConfig, update
from train.optimizer import OptimizerConfig


@pytest.fixture(autouse=True)
def standard_dtype_promotion() -> Iterator[None]:
    with jax.numpy_dtype_promotion("standard"):
        yield


@pytest.fixture(scope="session", autouse=True)
def compiled_programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of compiled programs: what several tests compile is compiled once."""
    folder = tmp_path_factory.mktemp("compiled")
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    return folder


@dataclasses.dataclass(frozen=True)
class BigramConfig(ModelConfig):
    """A model that sees the newest token alone, with dropout: it compiles in a tenth of a GPT's time."""

    width: int = 8
    dropout_rate: float = 0.2

    def build(self, vocabulary_size: int) -> "Bigram":
        return Bigram(self, vocabulary_size)


class Bigram(nn.Module):
    config: BigramConfig
    vocabulary_size: int

    @nn.compact
    def __call__(self, tokens: jax.Array, *, deterministic: bool = True) -> jax.Array:
        x = nn.Embed(self.vocabulary_size, self.config.width, name="tokens")(tokens)
        x = Dropout(self.config.dropout_rate)(x, deterministic=deterministic)
        return nn.Dense(self.vocabulary_size, name="head")(x)

    def empty_cache(self, batch: int) -> None:
        raise NotImplementedError("it cannot generate")


@pytest.fixture(scope="session")
def small_text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of 900 characters, words of a small alphabet."""
    words = ["the", "tide", "eats", "that", "stone", "and", "sand", "does", "not", "mind", "so"]
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text(" ".join(np.random.default_rng(0).choice(words, size=300))[:900])
    return path


@pytest.fixture(scope="session")
def tiny_gpt() -> GPTConfig:
    """With dropout everywhere."""
    rates = {"embedding_dropout_rate": 0.1, "attention_dropout_rate": 0.1, "residual_dropout_rate": 0.1}
    return GPTConfig(num_layers=1, num_heads=2, width=8, context_length=8, use_bias=False, **rates)


@pytest.fixture(scope="session")
def tiny_config(small_text: Path) -> Callable[..., TrainConfig]:
    """Makes configs of a run of a second, with dropout: `tiny_config(total_steps=3, **{"data.batch_size": 2})`."""

    def make(**changes: object) -> TrainConfig:
        config = TrainConfig(
            recipe="tiny",
            data=CharacterText(
                source="text_file", path=str(small_text), batch_size=6, sequence_length=8, evaluation_batch_size=4
            ),
            model=BigramConfig(),
            optimizer=OptimizerConfig(learning_rate=1e-2, weight_decay=0.1),
            total_steps=12,
            evaluate_every_steps=6,
            checkpoint_every_steps=3,
            log_every_steps=3,
        )
        return update(config, **changes)

    return make
