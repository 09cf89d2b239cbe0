import dataclasses
from typing import get_args

import jax
import numpy as np
import pytest

from jaxnlp.models.bert import Bert, BertConfig
from jaxnlp.models.text_vectors import Pooling, pool
from jaxnlp.tasks.bert_verbs import encodings
from jaxnlp.tasks.bert_verbs.encodings import attend, embed_texts
from jaxnlp.text.embedding_settings import EmbeddingSettings

TEXTS = ["the cats sat", "a big dog ate " * 6, "fish .", "the mat", "on the mat sat the cat " * 3, "a"]


def all_in_one_batch(trained, texts):
    """The model's vectors of all texts, padded to all that it reads."""
    tokenized = trained.processor.vocabulary.tokenize(texts, max_length=40).tokens
    tokens = np.array([np.pad(ids, (0, 40 - len(ids))) for ids in tokenized])
    mask = np.array([np.arange(40) < len(ids) for ids in tokenized])
    bert = Bert(trained.model.config.encoder, trained.model.vocabulary_size)
    output = jax.jit(bert.apply)({"params": trained.params["encoder"]}, tokens, None, mask)
    return np.asarray(pool(output, mask, trained.model.config.pooling))


def softmax(x):
    return np.exp(x) / np.exp(x).sum(axis=1, keepdims=True)


@pytest.mark.thorough
def test_embeddings_are_the_models_vectors(trained):
    found = embed_texts(trained, TEXTS)
    np.testing.assert_allclose(found.values, all_in_one_batch(trained, TEXTS), atol=1e-5)
    assert (found.values.dtype, found.values.shape) == (np.float32, (6, 8))


@pytest.mark.sweep(2)
@pytest.mark.parametrize("pooling", [None, "weightedmean", *sorted(set(get_args(Pooling)) - {"weightedmean"})])
def test_texts_that_share_a_row_have_the_vectors_that_each_has_alone(trained, pooling):
    rows = encodings.packed_rows([len(trained.processor.vocabulary.encode(text)) + 2 for text in TEXTS], 40, 32)
    assert max(map(len, rows)) > 2
    found = embed_texts(trained, TEXTS, pooling=pooling).values
    alone = [embed_texts(trained, [text], pooling=pooling).values[0] for text in TEXTS]
    np.testing.assert_allclose(found, alone, atol=1e-5)


def test_a_prompt_that_the_pooling_leaves_out_is_left_out_of_each_text_of_a_row(trained):
    settings = EmbeddingSettings((("q", "the cat "),), "q", include_prompt=False)
    asked = dataclasses.replace(trained, processor=dataclasses.replace(trained.processor, embeddings=settings))
    found = embed_texts(asked, TEXTS).values
    np.testing.assert_allclose(found, [embed_texts(asked, [text]).values[0] for text in TEXTS], atol=1e-5)
    assert np.abs(found - embed_texts(trained, TEXTS).values).max() > 1e-3


def test_many_lengths_are_few_shapes(trained, monkeypatch):
    shapes = []

    def look(bert, pooling, skip, params, tokens, mask):
        shapes.append(tokens.shape)
        return np.zeros((len(tokens), 8), np.float32)

    monkeypatch.setattr(encodings, "_embed", look)
    monkeypatch.setattr(encodings, "_packed", lambda *_: None)  # as on other devices than CPUs
    many = [" ".join(["cat"] * number) for number in range(1, 39)] * 4
    assert embed_texts(trained, many).values.shape == (152, 8)
    embed_texts(trained, ["cat"])
    assert set(shapes) <= {(rows, 1, length) for rows in (1, 8, 64) for length in (16, 32, 40)}
    assert shapes[-1] == (1, 1, 16)


@pytest.mark.thorough
def test_warming_up_compiles_all_programs_of_later_calls(trained):
    programs = (encodings._embed, encodings._embed_packed)
    for program in programs:
        program.clear_cache()
    trained.warm_up("embed")
    compiled = [program._cache_size() for program in programs]
    assert compiled == [3, 1]
    for number in (1, 3, 20, 90):
        trained.embed([" ".join(["cat"] * (n % 40 + 1)) for n in range(number)])
    assert [program._cache_size() for program in programs] == compiled


@pytest.mark.thorough
def test_truncated_texts_are_counted_and_read_up_to_the_maximum_length(trained):
    long = ["cat " * 100, "the mat", "cat " * 38 + "dog"]
    found = embed_texts(trained, long)
    assert found.truncated_rows == [0, 2]
    np.testing.assert_allclose(found.values[0], embed_texts(trained, ["cat " * 38]).values[0], atol=1e-6)


def test_attention_is_that_of_the_encoder_on_the_tokens_of_the_text(trained):
    found = attend(trained, "The cats ate.", "A zebra")
    (maps,) = found.maps
    assert maps.rows == maps.columns == ["[CLS]", "the", "cat", "##s", "ate", ".", "[SEP]", "a", "[UNK]", "[SEP]"]
    assert (maps.weights.shape, found.truncated) == ((2, 2, 10, 10), False)
    assert (found.title, maps.visible) == ("The cats ate. | A zebra", None)
    np.testing.assert_allclose(maps.weights.sum(axis=-1), 1.0, atol=1e-5)

    params, vocabulary = trained.params, trained.processor.vocabulary
    # The first layer's, by the equations.
    tokens = np.array([vocabulary.id_of(piece) for piece in maps.rows])
    p = jax.tree.map(np.asarray, params["encoder"])
    x = p["tokens"]["embedding"][tokens] + p["positions"][:10] + p["segments"][[0] * 7 + [1] * 3]
    x = (x - x.mean(axis=1, keepdims=True)) / np.sqrt(x.var(axis=1, keepdims=True) + 1e-12)
    x = x * p["embedding_norm"]["scale"] + p["embedding_norm"]["bias"]
    layer = {name: value[0] for name, value in p["blocks"]["attention"]["qkv"].items()}
    qkv = x @ layer["kernel"].reshape(x.shape[1], -1) + layer["bias"].reshape(-1)
    q, k, _ = (part.reshape(10, 2, 4) for part in np.split(qkv, 3, axis=1))
    for head in range(2):
        np.testing.assert_allclose(maps.weights[0, head], softmax(q[:, head] @ k[:, head].T / 2.0), atol=1e-5)


@pytest.mark.thorough
def test_attention_of_a_long_text_ends_at_the_maximum_length(trained):
    found = attend(trained, "the cat sat on the mat", max_length=5)
    assert (found.maps[0].rows, found.truncated) == (["[CLS]", "the", "cat", "sat", "[SEP]"], True)
    assert len(attend(trained, "cat " * 99, max_length=1000).maps[0].rows) == 40
    for wrong in (0, 2):
        with pytest.raises(ValueError, match=f"must be at least 3, got {wrong}"):
            attend(trained, "the cat", max_length=wrong)


def test_an_encoder_with_fewer_segments_than_its_tokenizer_reads_no_pair(make_trained):
    encoder = BertConfig(num_layers=1, num_heads=2, width=8, max_positions=40, num_segments=1)
    with pytest.raises(ValueError, match=r"num_segments must be at least 2, for the first and the second text, got 1"):
        attend(make_trained("sst", encoder=encoder), "the cat", "the dog")


@pytest.mark.sweep(1)
@pytest.mark.parametrize("pooling", ["cls", "pooler"])
def test_pooling_can_be_chosen(trained, make_trained, pooling):
    expected = embed_texts(make_trained(pooling=pooling), TEXTS).values
    np.testing.assert_allclose(embed_texts(trained, TEXTS, pooling=pooling).values, expected, atol=1e-6)
    assert np.abs(embed_texts(trained, TEXTS).values - expected).max() > 1e-2


def test_a_pooler_that_the_encoder_does_not_have_is_refused(make_trained):
    encoder = BertConfig(num_layers=1, num_heads=2, width=8, max_positions=40, use_pooler=False)
    with pytest.raises(ValueError, match="this encoder has no pooler; set pooling to cls or mean"):
        embed_texts(make_trained("sst", encoder=encoder), TEXTS, pooling="pooler")


def test_embeddings_are_normalized_where_the_encoders_settings_say_so(trained):
    plain = embed_texts(trained, TEXTS).values
    lengths = np.linalg.norm(plain, axis=1, keepdims=True)
    assert (np.abs(lengths - 1.0) > 0.1).all()
    settings = EmbeddingSettings(normalize=True)
    normalizing = dataclasses.replace(trained, processor=dataclasses.replace(trained.processor, embeddings=settings))
    np.testing.assert_allclose(embed_texts(normalizing, TEXTS).values, plain / lengths, rtol=1e-6)


@pytest.mark.sweep(1)
@pytest.mark.parametrize(
    "fields", [{}, {"texts": 2}, {"texts": 2, "pairs": "apart"}], ids=["texts", "together", "apart"]
)
def test_a_classifier_embeds_and_attends_as_the_encoder_that_it_has(make_classifier, trained, fields):
    """Single texts, whatever it classifies."""
    classifier = make_classifier(pooling="mean", **fields)
    same = dataclasses.replace(trained, params={"encoder": classifier.params["encoder"]})
    np.testing.assert_array_equal(embed_texts(classifier, TEXTS).values, embed_texts(same, TEXTS).values)
    found, expected = (attend(model, "the cats", "a dog") for model in (classifier, same))
    assert found.maps[0].rows == expected.maps[0].rows
    np.testing.assert_array_equal(found.maps[0].weights, expected.maps[0].weights)


def test_in_python_one_text_has_a_vector_and_several_a_matrix(trained, caplog):
    found = trained.embed(TEXTS)
    np.testing.assert_array_equal(found, embed_texts(trained, TEXTS).values)
    np.testing.assert_allclose(trained.embed(TEXTS[0]), found[0], atol=1e-6)
    assert not caplog.messages
    trained.embed([*TEXTS, "cat " * 100])
    assert caplog.messages == [f"1 of {len(TEXTS) + 1} texts was truncated to 40 tokens; the first is text 7"]


def test_blank_texts_have_zero_vectors_and_nothing_to_attend_to(trained):
    found = trained.embed(["the cat", " ", "fish ."])
    np.testing.assert_allclose(found[[0, 2]], trained.embed(["the cat", "fish ."]), atol=1e-6)
    assert (found[1] == 0).all()
    assert trained.embed([]).shape == (0, 8)
    with pytest.raises(ValueError, match=r"^the text is blank, or its pair is; give a text with characters$"):
        trained.attend("the cat", "")
