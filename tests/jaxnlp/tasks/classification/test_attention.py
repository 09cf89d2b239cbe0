import dataclasses

import jax
import numpy as np
import pytest

from jaxnlp.models.text_cnn import TextCNNConfig
from jaxnlp.models.text_rnn import TextRNNConfig
from jaxnlp.targets import Classes
from jaxnlp.tasks import Trained
from jaxnlp.tasks.bert_verbs import encodings
from jaxnlp.tasks.classification import Classification
from jaxnlp.text.classifier_processor import TextClassifierProcessor
from jaxnlp.text.wordpiece import SPECIAL, WordPieceVocabulary
from tests.random_parameters import random_parameters

PROCESSOR = TextClassifierProcessor(
    WordPieceVocabulary.of_pieces([*SPECIAL, "the", "cat", "sat"]), 8, 1, Classes(("no", "yes"))
)
TEXT = "the cat sat"


def trained_of(config):
    model, shapes = config.build(PROCESSOR), config.inputs(PROCESSOR)
    return Trained(Classification(), model, random_parameters(model, *shapes, spread=1.0), PROCESSOR, name="mine")


def test_the_weights_of_a_pooling_are_the_models_own():
    trained = trained_of(TextRNNConfig(embedding_width=4, widths=(5,), pooling="attention"))
    (maps,) = trained.attend(TEXT).maps
    batch = PROCESSOR([TEXT])
    expected = jax.jit(trained.model.attention_weights)(trained.params, batch["tokens"], batch["attention_mask"])
    np.testing.assert_allclose(maps.weights[0, 0], np.asarray(expected)[:, batch["attention_mask"][0]], atol=1e-6)
    assert (maps.rows, maps.columns) == (["the text"], ["[CLS]", "the", "cat", "sat", "[SEP]"])
    assert maps.weights.std() > 0.01
    with pytest.raises(ValueError, match="pair and max_length apply only to a BERT; remove them"):
        trained.attend(TEXT, max_length=3)


def test_a_bert_attends_as_its_encoder(make_classifier):
    trained = make_classifier(texts=2)
    found, expected = (attend("the cats", "a dog") for attend in (trained.attend, _encoder_of(trained)))
    np.testing.assert_array_equal(found.maps[0].weights, expected.maps[0].weights)
    assert found.maps[0].rows == expected.maps[0].rows


def _encoder_of(trained):
    return lambda *texts: encodings.attend(trained, *texts)


def test_a_model_without_attention_says_so_in_one_line():
    trained = trained_of(TextCNNConfig(embedding_width=4))
    with pytest.raises(ValueError, match=r"^mine has no attention to show: its model is a TextCNN$"):
        trained.attend(TEXT)
    other = dataclasses.replace(trained_of(TextRNNConfig(embedding_width=4, widths=(5,), pooling="max")), name="b")
    with pytest.raises(ValueError, match=r"^b has no attention to show: its model is a TextRNN$"):
        other.attend(TEXT)


def test_a_classifier_shows_only_the_functions_that_its_model_offers(make_classifier):
    attending = trained_of(TextRNNConfig(embedding_width=4, widths=(5,), pooling="attention"))
    shown = [repr(trained) for trained in (trained_of(TextCNNConfig(embedding_width=4)), attending, make_classifier())]
    endings = ("; predict)", "; predict, attend)", "; predict, embed, attend)")
    assert [text[-len(ending) :] for text, ending in zip(shown, endings, strict=True)] == [*endings]
