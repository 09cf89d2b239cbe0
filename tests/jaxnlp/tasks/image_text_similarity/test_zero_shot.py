"""Images are classified by texts as in Transformers."""

import numpy as np
import pytest
import torch

from tests.clip_folders import IMAGES, tokenizer
from tests.image_folders import for_transformers

CLASSES = ["a big dog", "the cat sat", "der hund"]


def test_probabilities_of_texts_are_those_of_transformers(tiny, files):
    _, model, run = tiny
    tokens = tokenizer()([f"on {name} ." for name in CLASSES], padding=True, return_tensors="pt")
    pixels = IMAGES([for_transformers(file) for file in files], return_tensors="pt")["pixel_values"]
    with torch.no_grad():
        expected = model(**tokens, pixel_values=pixels).logits_per_image.softmax(-1).numpy()
    found = run.predict(files, CLASSES, template="on {} .")
    np.testing.assert_allclose([[*one.probabilities.values()] for one in found], expected, atol=1e-5)
    assert [one.label for one in found] == [CLASSES[index] for index in expected.argmax(axis=1)]
    classifier = run.classifier(CLASSES, template="on {} .")
    assert classifier.predict(files) == found
    assert classifier.processor.classes == tuple(CLASSES)
    assert run.predict(files[0], CLASSES, template="on {} .").label == found[0].label
    np.testing.assert_allclose(classifier.embed(files[:1]), run.embed(files[:1]), atol=1e-6)


@pytest.mark.parametrize(
    ("classes", "options", "message"),
    [
        ("a cat", {}, r"classes must be a list of texts, such as \['a cat', ...\]"),
        ([], {}, "give at least two classes, all different, got none"),
        (["a cat"], {}, "^give at least two classes, all different, got a cat$"),
        (["a cat", "a cat"], {}, "give at least two classes, all different, got a cat, a cat"),
        (["a cat", " "], {}, "^class 2 of 2 is blank; give a text with characters$"),
        (["a cat", 3], {}, "expected texts, got int at index 1"),
        (["a cat", "a dog"], {"template": "a photo"}, r"the template must contain \{\} for the name of a class"),
    ],
    ids=str,
)
def test_classes_that_are_no_texts_are_refused(classes, options, message, tiny):
    _, _, run = tiny
    with pytest.raises(ValueError, match=message):
        run.classifier(classes, **options)


def test_a_model_of_texts_has_no_classes_of_images(texts_only, files):
    _, _, run = texts_only
    with pytest.raises(ValueError, match="this model reads only texts, and has no encoder of images"):
        run.predict(files[0], CLASSES)
    assert "predict" not in dir(run)
