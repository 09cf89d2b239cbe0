import dataclasses

import numpy as np
import pytest

from jaxnlp.text.windows import NextWordWindow


def test_windows_can_be_compared_and_hashed_although_they_hold_arrays():
    first, second = (NextWordWindow(np.array([1, 2], np.int32), 3) for _ in range(2))
    assert first == first
    assert first != second  # by identity: arrays have no truth value
    assert len({first, second}) == 2


def test_a_window_does_not_change():
    with pytest.raises(dataclasses.FrozenInstanceError):
        NextWordWindow(np.array([1, 2], np.int32), 3).target = 4
