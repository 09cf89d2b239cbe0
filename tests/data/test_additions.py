import itertools

import numpy as np
import pytest

from data.additions import Additions
from jaxnlp.text.questions import Question


@pytest.fixture(scope="module")
def corpus():
    return Additions(digits=1, held_out=10, batch_size=8).load(0)


def texts_of(corpus, batches):
    """The characters of each row of training batches, with the last target."""
    rows = [
        (tokens, targets)
        for batch in batches
        for tokens, targets in zip(batch["tokens"], batch["targets"], strict=True)
    ]
    decode = corpus.processor.decode
    return [decode(tokens[:1]) + decode(targets[targets != 0]) for tokens, targets in rows]


def test_all_pairs_are_in_one_split_with_their_sums(corpus):
    train = set(texts_of(corpus, itertools.islice(iter(corpus.train), 30)))
    held = [corpus.split(name).examples for name in ("validation", "test")]
    assert list(map(len, held)) == [10, 10]
    texts = {f"{one.text}\u2047{one.answer}\u2047" for questions in held for one in questions}
    assert train.isdisjoint(texts)
    assert train | texts == {f"{a}+{b}\u2047{a + b}\u2047" for a in range(10) for b in range(10)}


def test_only_the_answer_is_scored(corpus):
    batch = next(iter(corpus.train))
    assert batch["tokens"].shape == (8, 16)
    for tokens, targets, scored in zip(*(batch[name] for name in ("tokens", "targets", "loss_mask")), strict=True):
        text = corpus.processor.decode(targets[scored])
        first, second = corpus.processor.decode(tokens).partition("\u2047")[0].split("+")
        assert text == f"{int(first) + int(second)}\u2047"


def test_held_out_pairs_do_not_depend_on_the_seed_and_the_order_does(corpus):
    other = Additions(digits=1, held_out=10, batch_size=8).load(1, corpus.processor)
    assert other.split("validation").examples == corpus.split("validation").examples
    assert other.fingerprint == corpus.fingerprint
    assert np.any(next(iter(other.train))["tokens"] != next(iter(corpus.train))["tokens"])


def test_numbers_have_up_to_three_digits():
    three = Additions(digits=3)
    assert three.question(999_999) == Question("999+999", "1998")
    assert three.question(12_045) == Question("12+45", "57")
    with pytest.raises(
        ValueError, match=r"data\.held_out 500 leaves too few of 100 additions .*lower it to 25 or less"
    ):
        Additions(digits=1)
