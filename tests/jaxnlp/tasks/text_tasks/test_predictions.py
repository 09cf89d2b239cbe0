import dataclasses
import functools

import jax
import numpy as np
import pytest
from jaxnlp.encoders import load_text_model
from jaxnlp.texts import attend_text, embed_texts, predict_texts

from jaxnlp import texts

TEXTS = ["the cats sat", "a big dog ate " * 6, "fish .", "the mat", "on the mat sat the cat " * 3, "a"]
PAIRS = ["a cat sat", "the fish", "fish . " * 9, "the mat", "dogs", "big"]


@pytest.fixture(scope="module")
def held(text_tasks_run):
    return load_text_model(text_tasks_run.folder)


def all_in_one_batch(held, *columns, **arguments):
    """The model on all rows, padded to all that it reads."""
    model, params, vocabulary, *_ = held
    tokenized = [vocabulary.tokenize(column, longest=40).tokens for column in columns]
    tokens = np.array([[np.pad(ids, (0, 40 - len(ids))) for ids in row] for row in zip(*tokenized, strict=True)])
    mask = np.array([[np.arange(40) < len(ids) for ids in row] for row in zip(*tokenized, strict=True)])
    apply = functools.partial(model.apply, **arguments)
    return np.asarray(jax.jit(apply)({"params": params}, tokens, mask))


def softmax(x):
    return np.exp(x) / np.exp(x).sum(axis=1, keepdims=True)


@pytest.mark.parametrize("task", ["sst", "cfimdb"])
def test_classes_have_their_probabilities_in_the_order_of_the_texts(held, task):
    found = predict_texts(held, TEXTS, task=task)
    np.testing.assert_allclose(found.values, softmax(all_in_one_batch(held, TEXTS, task=task)), atol=1e-5)
    assert found.truncated == 0
    assert np.ptp(found.values, axis=0).max() > 0.05


def test_pairs_have_their_answers_on_the_scale_of_the_labels(held):
    logits = all_in_one_batch(held, TEXTS, PAIRS, task="quora")
    found = predict_texts(held, TEXTS, PAIRS, task="quora").values
    np.testing.assert_allclose(found, 1.0 / (1.0 + np.exp(-logits)), atol=1e-5)
    cosines = all_in_one_batch(held, TEXTS, PAIRS, task="sts")
    found = predict_texts(held, TEXTS, PAIRS, task="sts").values
    np.testing.assert_allclose(found, 5.0 * np.clip(cosines, 0.0, 1.0), atol=1e-4)
    assert found[3] == pytest.approx(5.0, abs=1e-4)


def test_vectors_are_the_models_own(held):
    found = embed_texts(held, TEXTS)
    np.testing.assert_allclose(found.values, all_in_one_batch(held, TEXTS, method="embed")[:, 0], atol=1e-5)
    assert (found.values.dtype, found.values.shape) == (np.float32, (6, 8))


def test_batches_of_any_size_give_the_same(held):
    whole = predict_texts(held, TEXTS, task="sst").values
    for batch_tokens in (1, 40):
        found = predict_texts(held, TEXTS, task="sst", batch_tokens=batch_tokens).values
        np.testing.assert_allclose(found, whole, atol=1e-6)


def test_many_lengths_are_few_shapes(held, monkeypatch):
    shapes = []

    def look(model, params, tokens, mask):
        shapes.append(tokens.shape)
        return np.zeros((len(tokens), 8), np.float32)

    monkeypatch.setattr(texts, "_vectors", look)
    many = [" ".join(["cat"] * number) for number in range(1, 39)] * 4
    assert embed_texts(held, many).values.shape == (152, 8)
    # [CLS] and [SEP] with up to 14 words, 30 words, and the model's 40 tokens; rows as the largest batch has them.
    assert set(shapes) == {(64, 1, 16), (64, 1, 32), (32, 1, 40)}
    shapes.clear()
    embed_texts(held, many, batch_tokens=160)
    assert set(shapes) == {(10, 1, 16), (5, 1, 32), (4, 1, 40)}


def test_texts_that_are_cut_are_counted_and_read_up_to_there(held):
    long = ["cat " * 100, "the mat", "cat " * 38 + "dog"]
    found = embed_texts(held, long)
    assert found.truncated == 2
    np.testing.assert_allclose(found.values[0], embed_texts(held, ["cat " * 38]).values[0], atol=1e-6)
    assert predict_texts(held, long, long, task="sts").truncated == 4


@pytest.mark.parametrize(
    ("columns", "task", "message"),
    [
        ([["a"]], "nli", "the model has no task nli; it has sst, cfimdb, quora, sts"),
        ([["a"]], "sts", "sts is about two texts: give pairs"),
        ([["a"], ["b"]], "sst", "sst is about one text: leave out pairs"),
        ([["a", "b"], ["b"]], "sts", "each text needs its pair, got 2 texts and 1 pairs"),
        ([[]], "sst", "there is no text"),
    ],
)
def test_what_does_not_fit_the_task_is_refused(held, columns, task, message):
    with pytest.raises(ValueError, match=message):
        predict_texts(held, *columns, task=task)


def test_attention_is_the_encoders_on_the_pieces_of_the_text(held):
    maps = attend_text(held, "The cats ate.", "A zebra")
    assert maps.pieces == ["[CLS]", "the", "cat", "##s", "ate", ".", "[SEP]", "a", "[UNK]", "[SEP]"]
    assert (maps.weights.shape, maps.truncated) == ((2, 2, 10, 10), False)
    np.testing.assert_allclose(maps.weights.sum(axis=-1), 1.0, atol=1e-5)

    _, params, vocabulary, *_ = held
    # The first layer's, by the equations.
    tokens = np.array([vocabulary.id_of(piece) for piece in maps.pieces])
    p = jax.tree.map(np.asarray, params["encoder"])
    x = p["tokens"]["embedding"][tokens] + p["positions"][:10] + p["segments"][[0] * 7 + [1] * 3]
    x = (x - x.mean(axis=1, keepdims=True)) / np.sqrt(x.var(axis=1, keepdims=True) + 1e-12)
    x = x * p["embedding_norm"]["scale"] + p["embedding_norm"]["bias"]
    layer = {name: value[0] for name, value in p["blocks"]["attention"]["qkv"].items()}
    qkv = x @ layer["kernel"].reshape(x.shape[1], -1) + layer["bias"].reshape(-1)
    q, k, _ = (part.reshape(10, 2, 4) for part in np.split(qkv, 3, axis=1))
    for head in range(2):
        np.testing.assert_allclose(maps.weights[0, head], softmax(q[:, head] @ k[:, head].T / 2.0), atol=1e-5)


def test_attention_to_a_long_text_ends_where_it_is_cut(held):
    maps = attend_text(held, "the cat sat on the mat", longest=5)
    assert (maps.pieces, maps.truncated) == (["[CLS]", "the", "cat", "sat", "[SEP]"], True)
    assert len(attend_text(held, "cat " * 99, longest=1000).pieces) == 40
    with pytest.raises(ValueError, match="longest must be at least 3, got 0"):
        attend_text(held, "the cat", longest=0)


def test_an_encoder_of_one_segment_reads_no_pair(tmp_path, save_run, text_tasks_run, pieces):
    encoder = dataclasses.replace(text_tasks_run.config.encoder, num_segments=1)
    save_run(tmp_path / "run", dataclasses.replace(text_tasks_run.config, encoder=encoder), pieces)
    with pytest.raises(ValueError, match="one kind of segment, and tells no second text apart"):
        attend_text(load_text_model(tmp_path / "run"), "the cat", "the dog")
