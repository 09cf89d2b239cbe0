"""docs/schedules.md has every schedule, and its picture draws every schedule."""

import os
import re
import subprocess
import sys

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


RECIPE = '''
import jax.numpy as jnp

from configs.gpt_python_docs import get_config
from train.optimizer.schedules import Schedule


class Sine(Schedule, kind="sine"):
    """A quarter of a wave."""

    def shape(self, progress, total_steps):
        return jnp.cos(progress / total_steps * jnp.pi / 2)
'''
READ = """
from train.cli.command_line import RunOptions, parse

words = ["mine.py", "--optimizer.schedule", "sine", "--optimizer.schedule.warmup", "2", "--total-steps", "8"]
config, _ = parse(words, RunOptions(), program="prog")
optimizer = config.optimizer
print(*(float(optimizer.rate(step, total_steps=8) / optimizer.learning_rate) for step in (1.0, 4.0)))
"""


@pytest.mark.thorough
def test_a_schedule_of_a_recipes_own_file_is_a_choice(root, tmp_path):
    """In a process of its own, so that other tests do not have the further choice."""
    (tmp_path / "mine.py").write_text(RECIPE)
    environment = os.environ | {"PYTHONPATH": str(root)}
    done = subprocess.run([sys.executable, "-c", READ], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert [float(word) for word in done.stdout.split()] == pytest.approx([0.5, 0.5**0.5], rel=1e-5)
