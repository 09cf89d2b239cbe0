import dataclasses

import jax
import numpy as np
import pytest
from scipy.special import log_softmax

from jaxnlp.corpus import Split
from jaxnlp.images.palette import sequences
from jaxnlp.tasks.image_language_model import ImageLanguageModel
from jaxnlp.tasks.image_language_model.evaluators import COMPLETIONS, Validation
from tests.jaxnlp.tasks.image_language_model.images import IMAGES, PALETTE, opened
from train.evaluation.scoring import SplitScoring
from train.parallel import make_parallel


def scoring_of(trained, images=IMAGES, **fields):
    ids = PALETTE.encode(images)
    batch = sequences(ids) | {"loss_mask": np.ones(ids.shape, bool)}
    trained = dataclasses.replace(trained, task=ImageLanguageModel(**fields))
    objective, layout = trained.task.objective(trained.model, None), make_parallel("jit", jax.devices()[:1])
    split = Split([batch], tuple(images))
    return SplitScoring(trained, split, "dev", training=None, objective=objective, layout=layout, kept={})


def test_validation_has_the_loss_of_all_pixels_and_pictures(trained):
    found = Validation()(scoring_of(trained))
    batch = sequences(PALETTE.encode(IMAGES))
    scores = log_softmax(np.asarray(jax.jit(trained.model.apply)({"params": trained.params}, batch["tokens"])), axis=-1)
    losses = -np.take_along_axis(scores, batch["targets"][..., None], axis=-1)
    assert found.metrics["loss"] == pytest.approx((losses.mean(), 80), rel=1e-5)
    assert found.metrics["perplexity"].value == pytest.approx(np.exp(losses.mean()), rel=1e-5)
    assert [section.name for section in found.sections] == ["Completions", "Samples"]
    rows, new = (opened(section.content.png) for section in found.sections)
    assert rows.shape == (16 * (4 * 5 - 1), 16 * ((COMPLETIONS + 2) * 5 - 1))
    assert new.shape == (16 * 19, 16 * 19)
    assert not Validation()(scoring_of(trained, sample_images=0)).sections
