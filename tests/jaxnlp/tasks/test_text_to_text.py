"""The loss is tested with its subclass in translation/test_init.py."""

import math

import pytest

from jaxnlp.corpus import Split
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
