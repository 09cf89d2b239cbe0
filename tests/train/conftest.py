"""Compiled programs shared by all tests, configs of runs that take a second, and ways to stop a run at a step.

Strict dtype promotion is off here: Optax raises a Python float to an integer power in Adam's bias correction.
"""

import contextlib
import dataclasses
import io
import itertools
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rich.console import Console

from data.character_text import CharacterText
from jaxnlp.models import ModelConfig, Parameter
from jaxnlp.models.gpt import GPTConfig
from jaxnlp.nn.dropout import Dropout
from jaxnlp.nn.shards import sum_over_shards
from jaxnlp.tasks.language_model import LanguageModel
from train.config import TrainConfig, update
from train.logs.log import RunLog
from train.loop import FitResult, fit
from train.optimizer import AdamW


@pytest.fixture(scope="module", autouse=True)
def standard_dtype_promotion() -> Iterator[None]:
    with jax.numpy_dtype_promotion("standard"):
        yield


@dataclasses.dataclass(frozen=True)
class BigramConfig(ModelConfig):
    """A model that sees only the newest token, with dropout: it compiles in a tenth of a GPT's time."""

    width: int = 8
    dropout_rate: float = 0.2
    context_length: int = 8

    @property
    def max_length(self) -> int:
        return self.context_length

    def build(self, processor) -> "Bigram":
        return Bigram(self, processor.size)

    def parameter(self, path: tuple[str, ...]) -> Parameter:
        return {
            ("tokens", "embedding"): Parameter("VD", "below"),
            ("head", "kernel"): Parameter("DV", matrix=True, head=True),
            ("head", "bias"): Parameter("V", head=True),
        }[path]


class Bigram(nn.Module):
    config: BigramConfig
    vocabulary_size: int

    @nn.compact
    def __call__(
        self, tokens: jax.Array, *, deterministic: bool = True, cache: tuple[()] | None = None, count: Any = None
    ):
        chex.assert_rank(tokens, 2)
        x = nn.Embed(self.vocabulary_size, self.config.width, name="tokens")(tokens)
        x = Dropout(self.config.dropout_rate)(x, deterministic=deterministic)
        logits = nn.Dense(self.vocabulary_size, name="head")(x)
        return logits if cache is None else (logits, cache)

    @property
    def capacity(self) -> int:
        return self.config.context_length

    def empty_cache(self, batch: int) -> tuple[()]:
        """Nothing is kept."""
        return ()

    def decoding_params(self, params: Any) -> Any:
        """Unchanged."""
        return params


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
            task=LanguageModel(),
            optimizer=AdamW(learning_rate=3e-2, weight_decay=0.1),
            total_steps=12,
            evaluate_every_steps=6,
            checkpoint_every_steps=3,
            log_every_steps=3,
        )
        return update(config, **changes)

    return make


@pytest.fixture
def loud() -> Console:
    """A console that is not a terminal; its `file` has what was printed."""
    return Console(file=io.StringIO(), force_terminal=False, soft_wrap=True)


@pytest.fixture(scope="session")
def quiet() -> Console:
    """A console that shows nothing."""
    return Console(quiet=True)


@pytest.fixture(scope="session")
def quick_fit(quiet: Console) -> Callable[..., FitResult]:
    """`fit` that prints nothing if it is given no console, and draws no report: that takes longer than the training."""

    def run(config: TrainConfig, workdir: Path, console: Console = quiet, **options: Any) -> FitResult:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("train.loop.write_report", lambda _: None)
            return fit(config, workdir, console=console, **options)

    return run


@pytest.fixture
def after_step(monkeypatch: pytest.MonkeyPatch) -> Callable[..., contextlib.AbstractContextManager[None]]:
    """`with after_step(n, act):` calls `act` as soon as step n of a run is done, before anything of it is logged."""

    @contextlib.contextmanager
    def patched(step: int, act: Callable[[], object]) -> Iterator[None]:
        collect, enter = RunLog.collect, RunLog.__enter__
        done = iter(())

        def entered(log: RunLog) -> RunLog:
            nonlocal done
            done = itertools.count(log._first_step + 1)
            return enter(log)

        def collected(log: RunLog, metrics: object) -> None:
            collect(log, metrics)
            if next(done) == step:
                act()

        with monkeypatch.context() as patch:
            patch.setattr(RunLog, "__enter__", entered)
            patch.setattr(RunLog, "collect", collected)
            yield

    return patched


@pytest.fixture
def stop_at(after_step: Callable[..., contextlib.AbstractContextManager[None]]) -> Callable[..., object]:
    """`with stop_at(n):` sends SIGTERM when step n of a run is done."""
    return lambda step: after_step(step, lambda: signal.raise_signal(signal.SIGTERM))


def poisoned(batch):
    """Whether a batch's loss is made NaN: about one in three."""
    return sum_over_shards(batch["tokens"].sum()) % 3 == 0


@pytest.fixture
def poison(monkeypatch):
    """Makes the training loss of some batches NaN; returns the steps of a config at which it is."""
    plain = LanguageModel.objective

    def objective(task, model, corpus):
        found = plain(task, model, corpus)

        def loss(params, batch, key, carry):
            value, (metrics, carry) = found.loss(params, batch, key, carry)
            factor = 1.0 if key is None else jnp.where(poisoned(batch), jnp.nan, 1.0)
            return value * factor, ({"loss": (metrics["loss"][0] * factor, metrics["loss"][1])}, carry)

        return dataclasses.replace(found, loss=loss)

    monkeypatch.setattr(LanguageModel, "objective", objective)

    def steps(config):
        batches = itertools.islice(config.data.load(config.seed).train, config.total_steps)
        return [number for number, batch in enumerate(batches, 1) if poisoned(batch)]

    return steps


class Clock:
    """Stands where `train.logs.log` reads the time."""

    def __init__(self):
        self.now = 100.0

    def perf_counter(self):
        return self.now

    monotonic = perf_counter


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr("train.logs.log.time", clock)
    return clock
