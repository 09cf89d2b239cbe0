"""The table of what 8 bits a weight cost, in docs/weights.md."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.special

from benchmarks.int8 import MARKERS, PAGE, RESULTS, mean_loss, table
from benchmarks.markdown import with_table
from jaxnlp.tasks import Trained
from jaxnlp.tasks.language_model import LanguageModel
from tests.jaxnlp.models.gpt_helpers import TARGETS, TOKENS, apply, make_model, random_params


def test_the_page_has_the_table_of_the_recorded_rows():
    page = PAGE.read_text(encoding="utf-8")
    assert page == with_table(page, table(json.loads(RESULTS.read_text(encoding="utf-8"))), MARKERS)


@pytest.mark.thorough
def test_the_loss_is_the_mean_over_targets_and_8_bits_change_it_little():
    model = make_model()
    params, mask = random_params(model), np.arange(TOKENS.size).reshape(TOKENS.shape) % 3 > 0
    trained = Trained(LanguageModel(), model, params, SimpleNamespace())
    batch = {"tokens": TOKENS, "targets": TARGETS, "loss_mask": mask}
    scores = scipy.special.log_softmax(np.float64(apply(model, params, TOKENS)), axis=-1)
    expected = -np.take_along_axis(scores, TARGETS[..., None], axis=-1)[..., 0][mask].mean()
    found = mean_loss(trained, [batch, batch | {"loss_mask": np.zeros_like(mask)}])
    assert found == pytest.approx(expected, rel=1e-5)
    assert found != mean_loss(trained.rounded("int8"), [batch]) == pytest.approx(found, rel=0.03)
