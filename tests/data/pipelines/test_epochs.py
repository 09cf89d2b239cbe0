import itertools
import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from data.pipelines.epochs import Epochs, keeps_last


def numbered(epoch):
    """Epochs of one to three batches, which say where they are."""
    return [{"place": np.array([epoch, i])} for i in range(1 + epoch % 3)]


def places(batches, count):
    return [tuple(batch["place"].tolist()) for batch in itertools.islice(batches, count)]


def test_epochs_follow_each_other():
    assert places(Epochs(numbered), 8) == [(0, 0), (1, 0), (1, 1), (2, 0), (2, 1), (2, 2), (3, 0), (4, 0)]


@pytest.mark.parametrize("taken", range(9))
def test_saved_and_set_state_gives_the_same_continuation(taken):
    original = iter(Epochs(numbered))
    places(original, taken)
    state = json.loads(json.dumps(original.get_state()))
    continued = iter(Epochs(numbered))
    places(continued, 5)
    continued.set_state(state)
    assert continued.get_state() == state
    assert places(original, 7) == places(continued, 7)


def test_iterators_of_the_same_data_do_not_disturb_each_other():
    batches = Epochs(numbered)
    first = iter(batches)
    places(first, 4)
    assert places(batches, 3) == [(0, 0), (1, 0), (1, 1)]
    assert places(first, 1) == [(2, 1)]


def test_an_epoch_is_made_once():
    made = []

    def epoch(number):
        made.append(number)
        return numbered(number)

    places(Epochs(epoch), 6)
    assert made == [0, 1, 2]


def test_the_last_result_is_kept_and_right_in_threads():
    made = []
    kept = keeps_last(lambda index: made.append(index) or index**2)
    assert [kept(index) for index in (1, 1, 2, 1)] == [1, 1, 4, 1]
    assert made == [1, 2, 1]
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(kept, [index % 3 for index in range(3000)])) == [0, 1, 4] * 1000
