import jax
import numpy as np
import pytest

from jaxnlp.corpus import Split
from jaxnlp.models.recurrent_lm import RecurrentLMConfig
from jaxnlp.tasks import Trained
from jaxnlp.tasks.language_model import RecurrentLanguageModel, words
from jaxnlp.tasks.language_model.words import frequent_words, nearest, position_losses, some_batches, word_sections
from jaxnlp.text.words import WordVocabulary

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
    return RecurrentLMConfig(embedding_width=4, widths=(6,)).build(VOCABULARY)


@pytest.fixture(scope="module")
def params(model):
    key = jax.random.key(0)
    found = jax.jit(lambda: model.init(key, batch()["tokens"]))()["params"]
    # Larger than initial ones, so that the context matters.
    return jax.tree.map(lambda leaf: 4.0 * leaf, found)


def expected_losses(model, params, split):
    """Sums and counts by position, each word read with the words before it only in its row; in NumPy."""
    predict = jax.jit(model.predict)
    sums, counts = np.zeros(POSITIONS), np.zeros(POSITIONS)
    for one in split.batches:
        for row, position in np.argwhere(one["loss_mask"]):
            read = one["tokens"][row : row + 1, : position + 1]
            logits = np.asarray(predict(params, read)[0], np.float64)
            sums[position] += np.log(np.exp(logits).sum()) - logits[one["targets"][row, position]]
            counts[position] += 1
    return sums, counts


@pytest.mark.thorough
def test_losses_at_each_position_are_those_of_rows_without_context_before_them(model, params):
    mask = np.arange(POSITIONS)[None, :] < np.array([5, 3, 2])[:, None]
    sums, counts = jax.jit(position_losses, static_argnums=0)(model, params, batch(2, mask))
    expected, expected_counts = expected_losses(model, params, Split((batch(2, mask),)))
    np.testing.assert_allclose(sums, expected, rtol=1e-5)
    np.testing.assert_array_equal(counts, expected_counts)


class Scoring:
    """What the sections need of a scoring: a model, a split, the training split, and what is made once."""

    def __init__(self, model, params, training, split):
        self.trained = Trained(RecurrentLanguageModel(), model, params, VOCABULARY)
        self.training, self.split, self.made = training, split, {}

    def whole_params(self):
        return self.trained.params

    def once(self, make, *arguments):
        key = make, arguments
        if key not in self.made:
            self.made[key] = make(*arguments)
        return self.made[key]


@pytest.mark.thorough
def test_perplexity_is_drawn_over_the_positions_that_are_scored(model, params):
    mask = np.zeros((BATCH, POSITIONS), bool)
    mask[1, :2] = True
    split = Split((batch(1, mask), batch(2, mask)))
    curve = word_sections(Scoring(model, params, text([4, 4, 1]), split))[0].content
    sums, counts = expected_losses(model, params, split)
    assert curve.lines[0].x == (1, 2)
    np.testing.assert_allclose(curve.lines[0].y, np.exp(sums[:2] / counts[:2]), atol=0.01)
    assert "Means over 4 validation words" in curve.note


def test_all_evaluations_run_one_program(model, params, monkeypatch):
    traced = []

    def counted(*arguments):
        traced.append(1)
        return position_losses(*arguments)

    monkeypatch.setattr(words, "position_losses", counted)
    scoring = Scoring(model, params, text([4, 4, 1]), Split(tuple(map(batch, range(3)))))
    assert word_sections(scoring) == word_sections(scoring)
    assert len(traced) == 1


def test_frequent_words_have_letters_only_and_fixed_ranks(monkeypatch):
    monkeypatch.setattr(words, "RANKS", (1, 3, 4, 9))
    # the x 6, <unk> x 5, of x 4, 3rd x 4, tide x 3, eats x 2, sand x 2, stone never
    split = text([4] * 6 + [0] * 5 + [3] * 4 + [5] * 4 + [1] * 3 + [6] * 2 + [2] * 2)
    found = [VOCABULARY.words[i] for i in frequent_words(VOCABULARY, split)]
    assert found == ["the", "sand", "eats"]


def test_words_outside_the_mask_are_not_counted(monkeypatch):
    monkeypatch.setattr(words, "RANKS", (1,))
    split = text([4, 4, 4, 1, 1])
    split.batches[0]["loss_mask"][0, :2] = False
    assert frequent_words(VOCABULARY, split) == (1,)


def test_neighbours_are_nearest_by_angle_and_never_the_word_itself():
    embeddings = np.array([[1, 0], [9, 9], [0, 2], [-3, 0], [1, 0.1], [0, 0]], np.float32)
    near, cosines = map(np.asarray, jax.jit(nearest)(embeddings, np.array([0, 5])))
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


def test_neighbours_of_the_frequent_words_are_listed_with_their_cosines(model, params, monkeypatch):
    monkeypatch.setattr(words, "RANKS", (1, 2))
    table = word_sections(Scoring(model, params, text([4, 4, 1]), Split((batch(),))))[1].content
    assert [word for word, _ in table.rows] == ["the", "tide"]
    embeddings = np.asarray(params["tokens"]["embedding"], np.float64)
    for word, listed in table.rows:
        own = embeddings[VOCABULARY.words.index(word)]
        shown = [pair.rsplit(" ", 1) for pair in listed.split(", ")]
        assert len(shown) == words.NEIGHBOURS
        for near, cosine in shown:
            other = embeddings[VOCABULARY.words.index(near)]
            assert abs(float(cosine) - own @ other / np.linalg.norm(own) / np.linalg.norm(other)) < 0.006
        cosines = [float(cosine) for _, cosine in shown]
        assert cosines == sorted(cosines, reverse=True)


def test_a_text_without_frequent_words_has_no_neighbours_to_list(model, params):
    assert word_sections(Scoring(model, params, text([4, 4, 1]), Split((batch(),))))[1].content.rows == ()
