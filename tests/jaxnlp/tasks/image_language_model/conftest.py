"""A tiny language model of images of 4 x 4 pixels in four greys, with random parameters."""

from collections.abc import Iterator

import jax
import pytest

from jaxnlp.tasks import Trained
from jaxnlp.tasks.image_language_model import ImageLanguageModel
from tests.jaxnlp.tasks.image_language_model.images import CONFIG, PALETTE
from tests.random_parameters import random_parameters


@pytest.fixture(scope="module", autouse=True)
def standard_promotion() -> Iterator[None]:
    """As users have it."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


@pytest.fixture(scope="session")
def trained() -> Trained:
    """The model."""
    model = CONFIG.build(PALETTE)
    params = jax.device_put(random_parameters(model, *CONFIG.inputs(PALETTE), spread=1.0))
    return Trained(ImageLanguageModel(), model, params, PALETTE, name="tiny")
