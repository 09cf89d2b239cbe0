"""Two of the eight devices: the programs of the tests still share batches, and compile and run in less time."""

import contextlib
import functools
from collections.abc import Iterator
from pathlib import Path

import jax
import pytest
from rich.console import Console

from train.config import TrainConfig
from train.loop import fit
from train.parallel import make_parallel


@contextlib.contextmanager
def two_devices() -> Iterator[None]:
    """In this context a run is trained and scored on two devices; tests/train has tests of all eight."""
    of_two = functools.partial(make_parallel, devices=jax.devices()[:2])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("train.loop.make_parallel", of_two)
        patch.setattr("train.evaluate.make_parallel", of_two)
        yield


def train(config: TrainConfig, folder: Path) -> Path:
    """Trains a run in this folder on two devices, with the promotion that users have; it draws no report."""
    with two_devices(), pytest.MonkeyPatch.context() as patch:
        patch.setattr("train.loop.write_report", lambda _: None)
        with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
            fit(config, folder, console=Console(quiet=True))
    return folder
