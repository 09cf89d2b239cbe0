"""The loss is tested with its subclass in translation/test_init.py."""

import math

import jax
import numpy as np
import pytest

from jaxnlp.corpus import Split
from jaxnlp.models.encoder_decoder import EncoderDecoderConfig
from jaxnlp.tasks import Metric
from jaxnlp.tasks.text_to_text import TextToText, with_perplexity


def test_perplexity_is_the_exponential_of_the_loss_and_stays_finite():
    assert with_perplexity({"loss": Metric(2.0, 7)})["perplexity"] == Metric(math.exp(2.0), 7)
    assert math.isfinite(with_perplexity({"loss": Metric(1e6, 7)})["perplexity"].value)


def test_the_objective_is_declared_where_it_differs_from_the_loss():
    assert "objective" not in TextToText().metrics(None, Split())
    assert "objective" in TextToText(label_smoothing=0.1).metrics(None, Split())
    with pytest.raises(ValueError, match=r"task\.label_smoothing must lie in \[0, 1\), got -0\.1"):
        TextToText(label_smoothing=-0.1)


def test_progress_is_the_number_of_source_and_target_tokens():
    model = EncoderDecoderConfig(num_layers=1, num_heads=2, width=8, context_length=8).build(11)
    batch = {name: np.ones((2, 6), np.int32) for name in ("source", "inputs", "targets")}
    batch |= {"source_mask": np.arange(6)[None] < np.array([[6], [2]])}
    batch |= {"loss_mask": np.arange(6)[None] < np.array([[4], [3]])}
    params = model.init(jax.random.key(0), batch["source"], batch["inputs"])["params"]
    objective = TextToText().objective(model, None)
    _, (metrics, _) = objective.loss(params, batch, jax.random.key(1), ())
    assert metrics[objective.progress] == (24.0, 15.0)
    assert TextToText().metrics(None, Split())[objective.progress].of == "tokens"
