"""Digits, learned by a small Vision Transformer."""

import io

import jax
import pytest
from PIL import Image
from rich.console import Console

from configs.vit_digits import get_config
from data.images import Images
from train.config import update
from train.loop import fit


@pytest.fixture(scope="module", autouse=True)
def standard_promotion():
    """As users have it."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


@pytest.fixture(scope="session")
def run(tmp_path_factory):
    """A run's folder."""
    folder = tmp_path_factory.mktemp("digits") / "run"
    small = {"num_layers": 1, "num_heads": 2, "width": 16, "feed_forward_width": 32, "patch": 4, "pooling": "cls"}
    fields = {f"model.{name}": value for name, value in small.items()}
    fields |= {"total_steps": 60, "evaluate_every_steps": 60, "data.shift": 0, "optimizer.warmup_steps": 5}
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        fit(update(get_config(), **fields), folder, console=Console(file=io.StringIO()))
    return folder


@pytest.fixture(scope="session")
def digit(tmp_path_factory):
    """The file of an image from the validation split."""
    example = Images(validation_fraction=0.2).load(0).split("validation").examples[3]
    path = tmp_path_factory.mktemp("image") / "digit.png"
    Image.fromarray(example.image[..., 0]).save(path)
    return path
