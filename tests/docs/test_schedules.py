"""docs/schedules.md has every schedule, and its picture draws every schedule."""

import re

import numpy as np
import pytest

from docs.schedules_plot import SCHEDULES, STEPS, draw, rates
from train.optimizer.schedules import Plateau, Schedule


def test_the_page_and_the_picture_have_every_schedule(root):
    page = (root / "docs" / "schedules.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `(\w+)` \|", page, re.M)) == Schedule.kinds().keys()
    assert {type(schedule) for schedule in SCHEDULES} == {*Schedule.kinds().values()}


@pytest.mark.thorough
def test_the_picture_is_drawn(tmp_path):
    assert draw(tmp_path).read_bytes().startswith(b"\x89PNG")
    (plateau,) = (rates(schedule) for schedule in SCHEDULES if isinstance(schedule, Plateau))
    np.testing.assert_allclose(plateau[[200, 450, 600, 850, STEPS - 1]], [1.0, 0.5, 0.25, 0.125, 0.1])
