"""The functions of classifiers as programs."""

import jax
import numpy as np
import pytest
from scipy.special import softmax

from jaxnlp.targets import AnyNumber, Number
from jaxnlp.tasks import Trained
from jaxnlp.tasks.bert_verbs.commands import Export
from jaxnlp.tasks.classification.export import exports
from jaxnlp.tasks.export.loader import load

TEXTS = ["the cats sat on the mat.", "a big dog"]


@pytest.mark.thorough
def test_a_reader_of_the_folder_gets_the_predictions(make_classifier, tmp_path, capsys):
    trained = make_classifier()
    Export(tmp_path / "out", format="jax")(trained)
    assert "classify(tokens, attention_mask, segments): outputs [B, C]" in capsys.readouterr().out
    functions = load(tmp_path / "out")
    batch = trained.processor(TEXTS)
    found = functions["classify"](**{name: batch[name] for name in trained.model.config.reads})
    shares = softmax(np.asarray(found["outputs"], np.float64), axis=1)
    for row, prediction in zip(shares, trained.predict(TEXTS), strict=True):
        np.testing.assert_allclose(row, list(prediction.probabilities.values()), atol=1e-5)
    vectors = functions["embed"](tokens=batch["tokens"], attention_mask=batch["attention_mask"])["vectors"]
    np.testing.assert_allclose(vectors, trained.embed(TEXTS), atol=1e-5)


@pytest.mark.thorough
def test_programs_for_pairs_that_are_read_apart_are_compiled_ahead(make_classifier):
    make_classifier(texts=2, pairs="apart").warm_up("predict")


@pytest.mark.sweep(1)
@pytest.mark.parametrize(
    ("targets", "returns"), [(Number(2.0, 6.0), "from 0 to 1, the ends of the scale"), (AnyNumber(), "the numbers")]
)
def test_exported_numbers_are_limited_to_the_scale_if_there_is_one(make_classifier, targets, returns):
    trained = make_classifier(targets=targets)
    params = {**trained.params, "head": {**trained.params["head"], "bias": jax.numpy.full(1, -90.0)}}
    classify = exports(trained)["classify"]
    assert returns in classify.returns
    batch = trained.processor(TEXTS)
    found = np.asarray(classify.apply(params, {name: batch[name] for name in trained.model.config.reads})["outputs"])
    labels = [
        one.label for one in Trained(trained.task, trained.model, params, trained.processor, name="low").predict(TEXTS)
    ]
    np.testing.assert_allclose(targets.lowest + targets.width * found[:, 0], labels, rtol=1e-5)
    assert (labels == [2.0, 2.0]) == targets.limited
