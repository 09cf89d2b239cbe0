import cloudpickle
import numpy as np
import pytest

from data.pipelines.part_schedules import PartSchedule


def turns(name, sizes=(100, 300, 600), steps=5_000, *, length=10, seed=0):
    schedule = PartSchedule(name, sizes, length=length, seed=seed)
    return np.array([schedule.turn(step) for step in range(steps)])


@pytest.mark.parametrize("name", ["round_robin", "proportional", "annealed", "sequential"])
def test_each_tasks_turns_are_counted_from_zero_without_a_gap(name):
    found = turns(name, steps=2_500)
    for task in range(3):
        mine = found[found[:, 0] == task, 1]
        assert mine.tolist() == list(range(len(mine)))
        assert len(mine) > 0


@pytest.mark.parametrize("name", ["round_robin", "proportional", "annealed", "sequential"])
def test_a_step_may_be_asked_for_in_any_order_and_by_another_process(name):
    expected = turns(name, steps=2_500)
    schedule = PartSchedule(name, (100, 300, 600), length=10, seed=0)
    of_a_process = cloudpickle.loads(cloudpickle.dumps(schedule))
    for step in (2_499, 3, 1_000, 999, 0, 2_001):
        assert schedule.turn(step) == of_a_process.turn(step) == tuple(expected[step])


@pytest.mark.parametrize("name", ["proportional", "annealed"])
def test_a_far_step_may_be_asked_for_first(name):
    schedule, turns = PartSchedule(name, (3, 1), length=10, seed=0), {}
    for step in range(1_500_000, 1_500_020):
        task, turn = schedule.turn(step)
        assert turn == turns.get(task, turn - 1) + 1
        turns[task] = turn
    assert sum(turn + 1 for turn in turns.values()) == 1_500_020  # all steps until here


def test_round_robin_takes_one_after_the_other():
    assert turns("round_robin", steps=7)[:, 0].tolist() == [0, 1, 2, 0, 1, 2, 0]


def test_sequential_stays_with_a_task_for_its_length():
    assert turns("sequential", steps=9, length=2)[:, 0].tolist() == [0, 0, 1, 1, 2, 2, 0, 0, 1]


def shares(found):
    return np.bincount(found[:, 0], minlength=3) / len(found)


def test_proportional_follows_the_sizes():
    steps, expected = 20_000, np.array([0.1, 0.3, 0.6])
    sigma = np.sqrt(expected * (1 - expected) / steps)
    assert (np.abs(shares(turns("proportional", steps=steps)) - expected) < 5 * sigma).all()


def test_annealed_begins_with_the_sizes_and_ends_near_equal_shares():
    length = 30_000
    found = turns("annealed", steps=50_000, length=length)
    early, late = found[:2_000], found[length:]
    weights = np.array([100, 300, 600]) ** 0.2
    np.testing.assert_allclose(shares(early), [0.1, 0.3, 0.6], atol=0.05)
    expected = weights / weights.sum()
    sigma = np.sqrt(expected * (1 - expected) / len(late))
    assert (np.abs(shares(late) - expected) < 5 * sigma).all()


def test_only_the_seed_decides_what_is_drawn():
    assert (turns("proportional", seed=1) == turns("proportional", seed=1)).all()
    assert (turns("proportional", seed=1) != turns("proportional", seed=2)).any()
