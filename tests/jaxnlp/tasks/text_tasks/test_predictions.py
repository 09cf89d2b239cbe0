import functools

import jax
import numpy as np
import pytest

from jaxnlp.tasks.text_tasks.predictions import predict_texts

TEXTS = ["the cats sat", "a big dog ate " * 6, "fish .", "the mat", "on the mat sat the cat " * 3, "a"]
PAIRS = ["a cat sat", "the fish", "fish . " * 9, "the mat", "dogs", "big"]


def all_in_one_batch(trained, *columns, part):
    """The model's predictions on all rows, padded to all that it reads."""
    tokenized = [trained.processor.vocabulary.tokenize(column, max_length=40).tokens for column in columns]
    rows = list(zip(*tokenized, strict=True))
    tokens = np.array([[np.pad(ids, (0, 40 - len(ids))) for ids in row] for row in rows])
    mask = np.array([[np.arange(40) < len(ids) for ids in row] for row in rows])
    apply = functools.partial(trained.model.apply, part=part, method="predict")
    return np.asarray(jax.jit(apply)({"params": trained.params}, tokens, mask))


def softmax(x):
    return np.exp(x) / np.exp(x).sum(axis=1, keepdims=True)


@pytest.mark.sweep(1)
@pytest.mark.parametrize("part", ["sst", "reviews"])
def test_classes_have_their_probabilities_in_the_order_of_the_texts(trained, part):
    found = predict_texts(trained, TEXTS, part=part)
    np.testing.assert_allclose(found.values, softmax(all_in_one_batch(trained, TEXTS, part=part)), atol=1e-5)
    assert found.truncated == 0
    assert np.ptp(found.values, axis=0).max() > 0.05


@pytest.mark.thorough
def test_predictions_of_pairs_are_on_the_scale_of_the_labels(trained):
    logits = all_in_one_batch(trained, TEXTS, PAIRS, part="quora")
    found = predict_texts(trained, TEXTS, PAIRS, part="quora").values
    np.testing.assert_allclose(found, 1.0 / (1.0 + np.exp(-logits)), atol=1e-5)
    cosines = all_in_one_batch(trained, TEXTS, PAIRS, part="sts")
    found = predict_texts(trained, TEXTS, PAIRS, part="sts").values
    np.testing.assert_allclose(found, 5.0 * np.clip(cosines, 0.0, 1.0), atol=1e-4)
    assert found[3] == pytest.approx(5.0, abs=1e-4)


def test_other_texts_change_nothing(trained):
    whole = predict_texts(trained, TEXTS, part="sst").values
    for texts in ([text] for text in TEXTS):
        (found,) = predict_texts(trained, texts, part="sst").values
        np.testing.assert_allclose(found, whole[TEXTS.index(texts[0])], atol=1e-6)
    many = predict_texts(trained, TEXTS * 20, part="sst").values
    np.testing.assert_allclose(many[: len(TEXTS)], whole, atol=1e-6)


@pytest.mark.parametrize(
    ("columns", "part", "message"),
    [
        ([["a"]], "nli", "this model does not have the part 'nli'; it has: sst, reviews, quora, sts"),
        ([["a"]], "sts", "sts takes two texts per example; give pairs"),
        ([["a"], ["b"]], "sst", "sst takes one text per example; remove pairs"),
        ([["a", "b"], ["b"]], "sts", "each text needs a second one; number of texts: 2, of second texts: 1"),
    ],
)
def test_texts_that_do_not_fit_the_part_are_refused(trained, columns, part, message):
    with pytest.raises(ValueError, match=message):
        predict_texts(trained, *columns, part=part)


def test_texts_are_truncated_to_the_processors_maximum_length(make_trained):
    found = predict_texts(make_trained("sst", max_length=4), ["the cats sat", "the cats ran"], part="sst")
    assert found.truncated == 2
    np.testing.assert_array_equal(found.values[0], found.values[1])


def test_in_python_a_prediction_has_names_and_probabilities(trained):
    values = predict_texts(trained, TEXTS, part="reviews").values
    found = trained.predict(TEXTS, part="reviews")
    assert [one.label for one in found] == [["negative", "positive"][row.argmax()] for row in values]
    assert found[0].probabilities == pytest.approx(dict(zip(("negative", "positive"), values[0].tolist(), strict=True)))
    assert trained.predict("the mat", "the mat", part="sts").label == pytest.approx(5.0, abs=1e-4)
    same = trained.predict(TEXTS, PAIRS, part="quora")[1]
    assert sum(same.probabilities.values()) == pytest.approx(1.0)
    assert same.probability == max(same.probabilities.values())


def test_in_python_a_part_is_chosen_where_several_fit(trained, make_trained):
    with pytest.raises(ValueError, match="choose a part: sst, reviews"):
        trained.predict("the cat")
    assert make_trained("sst").predict("the cat").label in "01234"
    with pytest.raises(ValueError, match="choose a part: sst; none of them takes two texts per example"):
        make_trained("sst").predict("the cat", "a cat")


def test_in_python_blank_texts_keep_their_places_and_no_texts_have_no_predictions(trained):
    cat, blank = trained.predict(["the cat", " "], part="sst")
    assert cat == trained.predict("the cat", part="sst")
    assert (blank.label, blank.probabilities) == (None, {})
    assert trained.predict("the cat", "", part="quora").label is None
    assert trained.predict([], part="sst") == trained.predict([], [], part="quora") == []
    with pytest.raises(ValueError, match="number of texts: 1, of second texts: 0"):
        trained.predict(["a"], [], part="quora")
