import jax
import numpy as np
import pytest
from train.words import describe, frequent_words, nearest, position_losses, some_batches

from data import Split
from jaxnlp.models.recurrent_lm import RecurrentLMConfig
from jaxnlp.text.words import WordVocabulary
from train import words

VOCABULARY = WordVocabulary(["<unk>", "tide", "sand", "of", "the", "3rd", "eats", "stone"], unknown="<unk>")
BATCH, POSITIONS = 3, 5


def batch(number=0, mask=None):
    generator = np.random.default_rng(number)
    tokens, targets = generator.integers(0, VOCABULARY.size, size=(2, BATCH, POSITIONS)).astype(np.int32)
    mask = np.ones((BATCH, POSITIONS), bool) if mask is None else mask
    return {"tokens": tokens, "targets": targets, "loss_mask": mask, "reset": np.zeros(BATCH, bool)}


def text(ids):
    """A split of one batch whose targets are these."""
    targets = np.array([ids], np.int32)
    return Split(({"tokens": targets, "targets": targets, "loss_mask": np.ones(targets.shape, bool)},))


@pytest.fixture(scope="module")
def model():
    return RecurrentLMConfig(embedding_width=4, widths=(6,)).build(VOCABULARY.size)


@pytest.fixture(scope="module")
def params(model):
    key = jax.random.key(0)
    found = jax.jit(lambda: model.init(key, batch()["tokens"]))()["params"]
    # Larger than they begin, so that what was read matters.
    return jax.tree.map(lambda leaf: 4.0 * leaf, found)


def test_losses_are_those_of_each_position_read_with_nothing_before_the_row(model, params):
    mask = np.arange(POSITIONS)[None, :] < np.array([5, 3, 2])[:, None]
    split = Split((batch(1), batch(2, mask)))
    expected, counts = np.zeros(POSITIONS), np.zeros(POSITIONS)
    for one in split.batches:
        for row in range(BATCH):
            for position in np.flatnonzero(one["loss_mask"][row]):
                read = one["tokens"][row : row + 1, : position + 1]
                logits = np.asarray(model.predict(params, read)[0], np.float64)
                expected[position] += np.log(np.exp(logits).sum()) - logits[one["targets"][row, position]]
                counts[position] += 1
    found, number = position_losses(model, params, split)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    np.testing.assert_array_equal(number, counts)


def test_positions_at_which_nothing_is_scored_are_left_out(model, params):
    mask = np.zeros((BATCH, POSITIONS), bool)
    mask[1, :2] = True
    found, number = position_losses(model, params, Split((batch(mask=mask),)))
    np.testing.assert_array_equal(number, [1, 1])
    assert np.isfinite(found).all()


def test_all_evaluations_run_one_program(model, params):
    words._position_losses.clear_cache()
    for _ in range(2):
        position_losses(model, params, Split(tuple(map(batch, range(3)))))
    assert words._position_losses._cache_size() == 1


def test_frequent_words_are_of_letters_and_stand_at_fixed_ranks(monkeypatch):
    monkeypatch.setattr(words, "RANKS", (1, 3, 4, 9))
    # the x 6, <unk> x 5, of x 4, 3rd x 4, tide x 3, eats x 2, sand x 2, stone never
    split = text([4] * 6 + [0] * 5 + [3] * 4 + [5] * 4 + [1] * 3 + [6] * 2 + [2] * 2)
    found = [VOCABULARY.words[i] for i in frequent_words(VOCABULARY, split)]
    assert found == ["the", "sand", "eats"]


def test_words_outside_the_mask_are_not_counted(monkeypatch):
    monkeypatch.setattr(words, "RANKS", (1,))
    split = text([4, 4, 4, 1, 1])
    split.batches[0]["loss_mask"][0, :2] = False
    assert frequent_words(VOCABULARY, split) == [1]


def test_neighbours_are_nearest_by_angle_and_never_the_word_itself():
    embeddings = np.array([[1, 0], [9, 9], [0, 2], [-3, 0], [1, 0.1], [0, 0]], np.float32)
    near, cosines = nearest(embeddings, [0, 5])
    assert near.shape == cosines.shape == (2, 5)  # of six words five are left
    assert near[0].tolist() == [4, 1, 2, 5, 3]
    np.testing.assert_allclose(cosines[0], [1 / np.sqrt(1.01), np.sqrt(0.5), 0.0, 0.0, -1.0], atol=1e-6)
    assert near[1].tolist() == [0, 1, 2, 3, 4]
    np.testing.assert_array_equal(cosines[1], 0.0)


@pytest.mark.parametrize(
    ("batches", "tokens", "expected"),
    [
        (10, 1, [0]),
        (10, 2 * BATCH * POSITIONS, [0, 5]),
        (10, 3 * BATCH * POSITIONS - 1, [0, 3, 6]),
        (2, 10_000, [0, 1]),
    ],
)
def test_some_batches_lie_at_even_distances(batches, tokens, expected):
    split = Split(tuple(batch() | {"number": i} for i in range(batches)))
    assert [one["number"] for one in some_batches(split, tokens)] == expected


def test_the_description_is_json_of_losses_and_neighbours(model, params, monkeypatch):
    monkeypatch.setattr(words, "RANKS", (1, 2))
    split = Split((batch(),))
    found = describe(model, params, VOCABULARY, training=text([4, 4, 1]), validation=split)
    sums, counts = position_losses(model, params, split)
    np.testing.assert_allclose(found["positions"], sums / counts, atol=1e-4)
    assert found["scored"] == BATCH * POSITIONS
    assert [one["word"] for one in found["neighbours"]] == ["the", "tide"]
    table = np.asarray(params["tokens"]["embedding"], np.float64)
    for one in found["neighbours"]:
        assert len(one["near"]) == words.NEIGHBOURS
        mine = table[VOCABULARY.words.index(one["word"])]
        for word, cosine in one["near"]:
            other = table[VOCABULARY.words.index(word)]
            assert abs(cosine - mine @ other / np.linalg.norm(mine) / np.linalg.norm(other)) < 1e-3
        cosines = [cosine for _, cosine in one["near"]]
        assert cosines == sorted(cosines, reverse=True)
