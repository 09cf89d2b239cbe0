import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from transformers.models.roberta.modeling_roberta import RobertaEmbeddings

from jaxnlp.convert.encoder_weights import to_huggingface
from jaxnlp.convert.encoders.roberta import FAMILY, like_roberta
from jaxnlp.convert.pretrained_encoder import read_pretrained
from jaxnlp.convert.tensors import WeightsError
from jaxnlp.models.bert import Bert, BertConfig
from jaxnlp.nn.compute import EXACT
from tests.encoder_folders import make_model, save_tokenizer
from tests.random_parameters import random_parameters

CONFIG = BertConfig(
    num_layers=1, num_heads=2, width=8, feed_forward_width=12, max_positions=6, num_segments=1, padding_id=1
)
MODEL = Bert(CONFIG, 11, EXACT)
PARAMS = random_parameters(MODEL, np.zeros((1, 1), np.int32))


def first_layer(tokens, mask=None):
    output = jax.jit(MODEL.apply)({"params": PARAMS}, jnp.asarray(tokens, jnp.int32), None, mask)
    return np.asarray(output.layers[0])


def test_positions_count_the_tokens_that_are_not_padding_as_in_transformers():
    """Also with padding in the middle, and with a text of nothing but padding."""
    tokens = np.array([[0, 5, 1, 6, 1, 2], [1, 1, 1, 1, 1, 1], [1, 1, 0, 1, 3, 2], [3, 4, 5, 6, 7, 8]])
    places = RobertaEmbeddings.create_position_ids_from_input_ids(torch.as_tensor(tokens), 1).numpy()
    table, words = PARAMS["positions"], PARAMS["tokens"]["embedding"]
    assert table.shape == (6 + 2, 8)
    x = words[tokens] + table[places] + PARAMS["segments"][0]
    x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + CONFIG.epsilon)
    expected = x * PARAMS["embedding_norm"]["scale"] + PARAMS["embedding_norm"]["bias"]
    np.testing.assert_allclose(first_layer(tokens), expected, atol=1e-5)


def test_padding_before_a_text_does_not_move_its_positions():
    text, padded = np.array([[3, 4, 5]]), np.array([[1, 1, 3, 4, 5]])
    np.testing.assert_array_equal(first_layer(padded)[:, 2:], first_layer(text))


def test_a_classifiers_first_layer_is_read_as_the_pooler(tmp_path):
    tokenizer = save_tokenizer("roberta", tmp_path)
    model = make_model("roberta", "ForSequenceClassification", vocab_size=len(tokenizer), num_labels=3)
    model.save_pretrained(tmp_path)
    with pytest.raises(WeightsError, match=r"unknown: classifier.out_proj.weight \(3, 8\)(?s:.*)--ignore classifier\."):
        read_pretrained(tmp_path)
    held = read_pretrained(tmp_path, ignore=("classifier.out_proj.",))
    assert held.config.use_pooler
    np.testing.assert_array_equal(held.params["pooler"]["kernel"], model.classifier.dense.weight.detach().T)
    assert not read_pretrained(tmp_path, ignore=("classifier.",)).config.use_pooler


def test_a_head_of_next_sentences_is_not_exported():
    follows = {"follows": {"kernel": np.zeros((8, 2), np.float32), "bias": np.zeros(2, np.float32)}}
    config = dataclasses.replace(CONFIG, model_type="roberta")
    with pytest.raises(WeightsError, match="RoBERTa has no head follows"):
        to_huggingface(jax.device_get(PARAMS), config, 11, follows)


def test_the_families_like_it_differ_in_their_names_only():
    other = like_roberta("X", "X", "x")
    assert other._replace(title="RoBERTa", prefix="Roberta", rules=FAMILY.rules) == FAMILY
