import numpy as np
import pytest

from jaxnlp.tasks.image_text_similarity.processor import ImageTextProcessor


def test_texts_and_images_become_arrays(tiny, files):
    _, _, run = tiny
    arrays = run.processor(["a cat", "the big dog sat"], files[:3])
    assert arrays.keys() == {"tokens", "images"}
    np.testing.assert_array_equal(arrays["tokens"], run.processor.vocabulary(["a cat", "the big dog sat"])["tokens"])
    np.testing.assert_array_equal(arrays["images"], run.processor.images(files[:3])["images"])
    assert run.processor("a cat").keys() == {"tokens"}
    assert run.processor("a cat " * 30)["tokens"].shape == (1, 24)
    assert run.processor(images=files[0])["images"].shape == (1, 12, 12, 3)


@pytest.mark.thorough
def test_the_model_takes_them_by_name(tiny, files):
    _, _, run = tiny
    logits = run.model.apply({"params": run.params}, **run.processor(["a cat", "the big dog sat"], files[:3]))
    assert logits.shape == (3, 2)
    shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    found = run.predict(files[:3], ["a cat", "the big dog sat"])
    np.testing.assert_allclose([[*one.probabilities.values()] for one in found], shares, atol=1e-5)


def test_it_is_equal_after_json_and_names_wrong_fields(tiny, texts_only):
    for _, _, run in (tiny, texts_only):
        assert ImageTextProcessor.from_json(run.processor.to_json()) == run.processor
    with pytest.raises(ValueError, match="expected vocabulary, max_length and images, got"):
        ImageTextProcessor.from_json({"max_length": 3})


def test_a_model_of_texts_refuses_images(texts_only, files):
    with pytest.raises(ValueError, match="this model reads only texts, got images"):
        texts_only[2].processor(images=files[0])
