import functools
import math
import re

import jax
import numpy as np
import pytest

from jaxnlp.corpus import DataError, Split
from jaxnlp.decoding.beam import beam_search
from jaxnlp.decoding.generation import decoder_of, generate
from jaxnlp.decoding.sampling import Sampling
from jaxnlp.models.recurrent_lm import RecurrentLMConfig
from jaxnlp.tasks import Metric, MetricKind, Trained
from jaxnlp.tasks.classification import Classification
from jaxnlp.tasks.language_model import LanguageModel, RecurrentLanguageModel, evaluators
from jaxnlp.tasks.language_model.evaluators import (
    Continuations,
    NextWord,
    Perplexity,
    RecurrentValidation,
    Validation,
    continuation_loss,
    next_word_losses,
    perplexity,
    token_losses,
)
from jaxnlp.text.windows import NextWordWindow
from jaxnlp.text.words import UNK, WordVocabulary
from tests.processors import sized
from tests.random_parameters import random_parameters
from train.evaluation.scoring import SplitScoring
from train.parallel import make_parallel

VOCABULARY, ROWS, LENGTH = 7, 2, 5
MODEL = RecurrentLMConfig(embedding_width=3, widths=(5, 4)).build(sized(VOCABULARY))
PARAMS = jax.device_put(random_parameters(MODEL, np.zeros((1, 1), np.int32), spread=1.0))
FORWARD, READ = jax.jit(MODEL.apply), jax.jit(functools.partial(MODEL.apply, method="read"))
WORDS = WordVocabulary((UNK, *"abcdef"))
RUN = Trained(RecurrentLanguageModel(), MODEL, PARAMS, WORDS, name="tiny", step=12, config={"seed": 3})


class Scoring(SplitScoring):
    """The scoring of training, on one device, with another run for `load` to find."""

    def __init__(self, trained=RUN, other=None, **fields):
        layout = make_parallel("jit", jax.devices()[:1])
        training = fields.pop("training", None)
        objective = trained.task.objective(trained.model, None)
        split = Split(**fields)
        super().__init__(trained, split, "test", training=training, objective=objective, layout=layout, kept={})
        self.other = other

    def load(self, place):
        return self.other


def batches(count=3, seed=0):
    """One text in two tracks, whose last batch is padded."""
    text = np.random.default_rng(seed).integers(0, VOCABULARY, (ROWS, count * LENGTH + 1)).astype(np.int32)
    found = []
    for number in range(count):
        here = slice(number * LENGTH, (number + 1) * LENGTH)
        mask = np.ones((ROWS, LENGTH), bool)
        if number == count - 1:
            mask[:, -2:] = False
        found.append(
            {
                "tokens": text[:, :-1][:, here],
                "targets": text[:, 1:][:, here],
                "loss_mask": mask,
                "reset": np.full(ROWS, number == 0),
            }
        )
    return found


def reference(params, cache):
    """Word by word in NumPy, with the mixture of the cache as in its equations."""
    total, count = 0.0, 0
    given = batches()
    for row in range(ROWS):
        tokens, targets, mask = (
            np.concatenate([batch[name][row] for batch in given]) for name in ("tokens", "targets", "loss_mask")
        )
        hidden = np.asarray(READ({"params": params}, tokens[None]).outputs, np.float64)[0]
        logits = logits_of(tokens[None])[0]
        for t in np.flatnonzero(mask):
            scores = np.exp(logits[t] - logits[t].max())
            probability = scores[targets[t]] / scores.sum()
            before = range(max(0, t - cache.cache_window), t)
            if len(before):
                similarity = np.exp([cache.cache_theta * hidden[t] @ hidden[i] for i in before])
                same = np.array([targets[i] == targets[t] for i in before])
                weight = cache.cache_weight
                probability = (1 - weight) * probability + weight * similarity[same].sum() / similarity.sum()
            total -= math.log(probability)
            count += 1
    return total, count


@pytest.mark.sweep(1)
@pytest.mark.parametrize("window", [0, 3, 50])
def test_losses_of_a_text_are_those_of_its_words_one_by_one(window):
    cache = Perplexity(cache_window=window, cache_theta=0.9, cache_weight=0.3) if window else Perplexity()
    expected, count = reference(PARAMS, cache)
    found, found_count = token_losses(MODEL, PARAMS, batches(), cache)
    assert found_count == count == ROWS * (3 * LENGTH - 2)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.thorough
def test_a_cache_without_weight_changes_nothing():
    plain, _ = token_losses(MODEL, PARAMS, batches())
    with_cache, _ = token_losses(MODEL, PARAMS, batches(), Perplexity(cache_window=4, cache_weight=0.0))
    np.testing.assert_allclose(with_cache, plain, rtol=1e-6)


def test_next_word_losses_are_of_the_word_after_each_window():
    inputs, targets = batches()[0]["tokens"], np.array([3, 6])
    logits = logits_of(inputs)[:, -1]
    expected = np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(ROWS), targets]
    np.testing.assert_allclose(next_word_losses(MODEL, PARAMS, inputs, targets), expected, rtol=1e-5)


@pytest.fixture
def parts_of_four(monkeypatch):
    monkeypatch.setattr(evaluators, "PREDICTED_TOGETHER", 4)


def random_prompts(count):
    return np.random.default_rng(5).integers(0, VOCABULARY, (count, LENGTH)).astype(np.int32)


def logits_of(text):
    return np.asarray(FORWARD({"params": PARAMS}, text), np.float64)


DECODER = decoder_of(MODEL)


def continued(prompts, trained=RUN, other=None, **options):
    """The evaluation, and the ids [N, n] of the words in its lines."""
    scoring = Scoring(trained, other, examples=tuple(prompts), scored=False)
    scoring._kept[decoder_of, (trained.model,)] = DECODER
    evaluation = Continuations(**options)(scoring)
    lines = [line.split(" | ") for line in evaluation.predictions["continuations.txt"].splitlines()]
    assert [begin.split() for begin, _ in lines] == [[WORDS.words[i] for i in row] for row in prompts]
    return evaluation, np.array([[WORDS.words.index(word) for word in added.split()] for _, added in lines])


@pytest.mark.sweep(1)
@pytest.mark.parametrize("count", [8, 10])
def test_next_word_losses_do_not_depend_on_the_rows_that_are_predicted_together(parts_of_four, count):
    inputs, targets = random_prompts(count), np.arange(count) % VOCABULARY
    logits = logits_of(inputs)[:, -1]
    expected = np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(count), targets]
    np.testing.assert_allclose(next_word_losses(MODEL, PARAMS, inputs, targets), expected, rtol=1e-5)


@pytest.mark.sweep(1)
@pytest.mark.parametrize("count", [8, 10])
def test_most_probable_continuations_do_not_depend_on_the_rows_that_are_predicted_together(parts_of_four, count):
    prompts = random_prompts(count)
    evaluation, found = continued(prompts, max_new_tokens=3)
    assert evaluation.metrics == {}
    logits = logits_of(np.concatenate([prompts, found], axis=1))[:, LENGTH - 1 : -1]
    np.testing.assert_array_equal(found, logits.argmax(axis=2))


@pytest.mark.thorough
def test_beams_do_not_depend_on_the_rows_that_are_searched_together(parts_of_four):
    prompts = random_prompts(10)
    _, found = continued(prompts, max_new_tokens=3, num_beams=3)
    expected = beam_search(DECODER, PARAMS, prompts, num_beams=3, max_new_tokens=3)
    np.testing.assert_array_equal(found, expected.tokens[:, 0])


@pytest.mark.thorough
def test_each_part_of_the_prompts_has_samples_of_its_own(parts_of_four):
    prompts, uniform = np.ones((12, LENGTH), np.int32), {"max_new_tokens": 8, "sampling": Sampling(1e4), "seed": 3}
    _, found = continued(prompts, **uniform)
    np.testing.assert_array_equal(found[:4], continued(prompts[:4], **uniform)[1])
    assert len({row.tobytes() for row in found}) == 12


@pytest.mark.thorough
def test_the_first_part_is_sampled_with_the_key_of_the_seed():
    prompts, sampling = random_prompts(4), Sampling(temperature=5.0)
    _, found = continued(prompts, max_new_tokens=5, sampling=sampling, seed=3)
    tokens = generate(DECODER, PARAMS, prompts, max_new_tokens=5, key=jax.random.key(3), sampling=sampling)
    np.testing.assert_array_equal(found, np.stack(list(tokens), axis=1))


def loss_of_continuations(prompts, added):
    logits = logits_of(np.concatenate([prompts, added], axis=1))[:, LENGTH - 1 : -1]
    return np.log(np.exp(logits).sum(axis=2)) - np.take_along_axis(logits, added[..., None], axis=2)[..., 0]


@pytest.mark.thorough
@pytest.mark.parametrize("count", [3, 11])
def test_a_scorer_counts_each_continuation_once_however_many_there_are(count):
    prompts = random_prompts(count)
    added = np.random.default_rng(6).integers(0, VOCABULARY, (count, 2)).astype(np.int32)
    nll, tokens = continuation_loss(RUN, prompts, added)
    assert tokens == 2 * count
    np.testing.assert_allclose(nll, loss_of_continuations(prompts, added).sum(), rtol=1e-5)


@pytest.mark.thorough
@pytest.mark.parametrize("num_beams", [1, 4])
def test_a_scorer_gives_the_perplexity_of_the_continuations_only(num_beams):
    prompts = random_prompts(3)
    evaluation, added = continued(prompts, other=RUN, scorer="run", max_new_tokens=5, num_beams=num_beams)
    value, count = evaluation.metrics["scorer_perplexity"]
    assert count == 15
    np.testing.assert_allclose(value, math.exp(loss_of_continuations(prompts, added).mean()), rtol=1e-4)
    assert evaluation.remarks["num_beams"] == num_beams
    assert evaluation.remarks["scorer"] == {"recipe": "tiny", "steps": 12, "config": None}
    assert (evaluation.remarks["sampling"] is None) == (num_beams > 1)


@pytest.mark.thorough
def test_beams_find_continuations_that_are_at_least_as_probable():
    greedy, beams = (
        continued(random_prompts(3), other=RUN, scorer="run", max_new_tokens=5, num_beams=n)[0] for n in (1, 4)
    )
    assert beams.metrics["scorer_perplexity"].value <= greedy.metrics["scorer_perplexity"].value * 1.0001


def test_a_scorer_with_another_vocabulary_reads_the_continuations_as_texts_after_the_prompts():
    other = Trained(RUN.task, MODEL, PARAMS, WordVocabulary((UNK, *"fedcba")), name="other")
    prompts = random_prompts(3)
    evaluation, added = continued(prompts, other=other, scorer="run", max_new_tokens=5)
    read = np.concatenate([prompts, added], axis=1)
    swapped = np.where(read > 0, VOCABULARY - read, 0)  # the same words have other ids
    expected = loss_of_continuations(swapped[:, : prompts.shape[1]], swapped[:, prompts.shape[1] :]).mean()
    value, count = evaluation.metrics["scorer_perplexity"]
    assert count == 15
    np.testing.assert_allclose(value, math.exp(expected), rtol=1e-4)


def test_a_scorer_that_is_not_a_language_model_is_refused():
    with pytest.raises(ValueError, match="--scorer run is not a language model: its task is Classification"):
        continued(random_prompts(2), other=Trained(Classification(), MODEL, PARAMS, WORDS), scorer="run")


@pytest.mark.parametrize(
    ("evaluator", "message"),
    [
        (Continuations(), "test has no prompts; give --file FILE.npy"),
        (NextWord(), "test has no windows with next words; give --file FILE.npz"),
        (Perplexity(), "test has no text to score"),
    ],
)
def test_a_split_that_holds_something_else_is_refused(evaluator, message):
    with pytest.raises(DataError, match=message):
        evaluator(Scoring(examples=("a text",)))


@pytest.mark.parametrize(("count", "shapes"), [(3, [3]), (4, [4]), (10, [4, 4, 4])])
def test_all_parts_have_one_shape(count, shapes):
    rows, flags = np.arange(1, 2 * count + 1).reshape(count, 2), np.ones(count, bool)
    parts = list(evaluators._parts(4, rows, flags))
    assert [(len(part), len(valid)) for part, valid in parts] == [(n, n) for n in shapes]
    padded, valid = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    np.testing.assert_array_equal(padded[:count], rows)
    assert valid.dtype == bool
    assert valid.sum() == count
    assert not padded[count:].any()


def test_next_words_are_counted_in_windows():
    """They were counted in tokens once."""
    inputs, targets = random_prompts(4), [3, 6, 0, 1]
    windows = tuple(NextWordWindow(row, target) for row, target in zip(inputs, targets, strict=True))
    found = NextWord()(Scoring(examples=windows)).metrics["next_word_nll"]
    assert found.count == 4
    np.testing.assert_allclose(found.value, next_word_losses(MODEL, PARAMS, inputs, np.array(targets)).mean())
    assert NextWord().metrics["next_word_nll"] == MetricKind("windows", "nats", "lower", title="next-word NLL")


@pytest.mark.sweep(1)
@pytest.mark.parametrize("window", [0, 3])
def test_perplexity_is_that_of_the_whole_text_and_has_a_name_of_its_own_with_a_cache(window):
    evaluator = Perplexity(cache_window=3, cache_weight=0.2) if window else Perplexity()
    evaluation = evaluator(Scoring(batches=tuple(batches())))
    ((name, metric),) = evaluation.metrics.items()
    total, count = reference(PARAMS, evaluator)
    assert metric.count == count
    np.testing.assert_allclose(metric.value, math.exp(total / count), rtol=1e-5)
    assert name == ("perplexity_with_cache" if window else "perplexity")
    assert name in evaluator.metrics
    if window:
        assert evaluation.remarks["cache"]["cache_window"] == 3
        assert evaluation.remarks["cache"]["cache_weight"] == 0.2
    else:
        assert evaluation.remarks == {}


def test_the_validation_loss_is_the_logarithm_of_the_perplexity():
    scoring = Scoring(batches=tuple(batches()))
    loss, perplexity = Validation()(scoring).metrics["loss"], Perplexity()(scoring).metrics["perplexity"]
    np.testing.assert_allclose(math.exp(loss.value), perplexity.value, rtol=1e-5)
    assert loss.count == perplexity.count


@pytest.mark.thorough
def test_a_prompt_of_the_task_gives_a_sample_with_the_seed_of_the_run():
    task = RecurrentLanguageModel(sample_prompt="a b", sample_tokens=4)
    scoring = Scoring(Trained(task, MODEL, PARAMS, WORDS, config={"seed": 3}), batches=tuple(batches()))
    (section,) = Validation()(scoring).sections
    assert section.keep == "all"
    ((prompt, sample),) = section.content.paragraphs
    assert (prompt, sample[1]) == (("a b", True), False)
    tokens = generate(DECODER, PARAMS, WORDS.encode("a b")[None], max_new_tokens=4, key=jax.random.key(3))
    assert sample[0] == WORDS.decode(int(token[0]) for token in tokens)
    assert Validation()(Scoring(batches=tuple(batches()))).sections == []


@pytest.mark.thorough
def test_word_models_show_positions_and_neighbours_where_the_training_words_are_known():
    here = tuple(batches())
    names = [section.name for section in RecurrentValidation()(Scoring(batches=here, training=Split(here))).sections]
    assert names == ["Perplexity by position", "Nearest embeddings"]
    assert RecurrentValidation()(Scoring(batches=here)).sections == []


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_new_tokens": 0}, "max_new_tokens must be at least 1, got 0"),
        ({"num_beams": 0}, "num_beams must be at least 1, got 0"),
        ({"seed": -1}, "seed must be at least 0, got -1"),
        ({"sampling": Sampling(0.0, top_k=5)}, "--top-k, --top-p and --seed need --temperature"),
        ({"sampling": Sampling(0.0, top_p=0.5)}, "--top-k, --top-p and --seed need --temperature"),
        ({"seed": 3}, "--top-k, --top-p and --seed need --temperature"),
        ({"num_beams": 4, "sampling": Sampling(0.0, top_k=5)}, "num_beams cannot be combined with temperature"),
        ({"num_beams": 4, "seed": 1}, "num_beams cannot be combined with temperature"),
    ],
)
def test_continuations_that_cannot_be_are_refused(settings, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        Continuations(**settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"cache_window": -1}, "cache_window must be at least 0, got -1"),
        ({"cache_theta": -0.5}, "cache_theta must be finite and not negative, got -0.5"),
        ({"cache_weight": 1.0}, "cache_weight must be in [0, 1), got 1.0"),
        ({"cache_weight": 0.5}, "cache_theta and cache_weight apply only to a neural cache; set cache_window"),
        ({"cache_theta": 1.0}, "cache_theta and cache_weight apply only to a neural cache; set cache_window"),
    ],
)
def test_caches_that_cannot_be_are_refused(settings, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        Perplexity(**settings)


@pytest.mark.thorough
def test_without_resets_every_row_of_every_batch_begins_with_zeros():
    given = [{name: array for name, array in batch.items() if name != "reset"} for batch in batches()]
    last = {name: array[:1] for name, array in given[-1].items()}  # of another number of rows
    found, count = token_losses(MODEL, PARAMS, [*given, last], Perplexity(cache_window=4))
    each = [token_losses(MODEL, PARAMS, [batch], Perplexity(cache_window=4)) for batch in [*given, last]]
    np.testing.assert_allclose(found, sum(total for total, _ in each), rtol=1e-6)
    assert count == sum(number for _, number in each)


@pytest.mark.thorough
def test_a_reset_row_forgets_the_entries_of_the_cache_too():
    first, second, _ = batches()
    restarted = second | {"reset": np.array([True, False])}
    cache = Perplexity(cache_window=4, cache_weight=0.5)
    alone, _ = token_losses(MODEL, PARAMS, [{name: array[:1] for name, array in second.items()}], cache)
    rest = [{name: array[1:] for name, array in batch.items()} for batch in (first, second)]
    other, _ = token_losses(MODEL, PARAMS, rest, cache)
    before, _ = token_losses(MODEL, PARAMS, [{name: array[:1] for name, array in first.items()}], cache)
    found, _ = token_losses(MODEL, PARAMS, [first, restarted], cache)
    np.testing.assert_allclose(found, alone + other + before, rtol=1e-5)


@pytest.mark.thorough
def test_the_loss_of_a_word_that_model_and_cache_find_impossible_is_finite():
    large = jax.tree.map(lambda p: 500.0 * p, PARAMS)
    plain, _ = token_losses(MODEL, large, batches())
    found, _ = token_losses(MODEL, large, batches(), Perplexity(cache_window=1, cache_weight=0.1))
    assert plain > 300.0
    assert np.isfinite(found)


def test_the_task_and_not_the_model_decides_whether_words_are_described():
    """A model with embeddings and a word vocabulary was taken for a language model once, whatever its task."""
    here = tuple(batches())
    assert Validation()(Scoring(batches=here, training=Split(here))).sections == []
    assert LanguageModel().evaluators["validation"] is Validation
    assert RecurrentLanguageModel().evaluators["validation"] is RecurrentValidation


def test_the_perplexity_is_the_exponential_of_a_mean_in_nats():
    assert perplexity(Metric(2.0, 7)) == Metric(pytest.approx(7.3890561), 7)
    assert perplexity(Metric(1e6, 7)) == Metric(float("inf"), 7)
