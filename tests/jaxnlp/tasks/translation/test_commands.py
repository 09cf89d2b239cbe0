"""What `jaxnlp translate` prepares; test_init.py runs it."""

import numpy as np
import pytest

from jaxnlp.tasks.translation.commands import Translate
from jaxnlp.tasks.translation.search import padded


def test_sources_are_padded_to_a_multiple_of_sixteen_or_the_longest_there_may_be():
    ids, mask = padded([[5, 6, 7], [8]], 96)
    assert ids.shape == mask.shape == (2, 16)
    np.testing.assert_array_equal(ids[:, :4], [[5, 6, 7, 0], [8, 0, 0, 0]])
    np.testing.assert_array_equal(mask.sum(axis=1), [3, 1])
    assert padded([list(range(17))], 20)[0].shape == (1, 20)


def test_no_more_translations_than_beams_are_given():
    with pytest.raises(ValueError, match="--n-best must be from 1 to --num-beams, which is 2, got 3"):
        Translate(num_beams=2, n_best=3)
