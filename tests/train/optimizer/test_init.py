"""What optimizers and schedules refuse, and the choice of their kinds."""

import math
import re

import pytest

from train.config import update
from train.optimizer import SGD, AdamW, Muon, OptimizerConfig
from train.optimizer.schedules import Constant, Cosine, CosineRestarts, Noam, OneCycle, Plateau, Schedule, Step
from train.recipes import load_recipe


@pytest.mark.parametrize(
    ("kind", "fields", "message"),
    [
        (AdamW, {"learning_rate": 0.0}, "optimizer.learning_rate must be positive and finite, got 0.0"),
        (AdamW, {"learning_rate": math.nan}, "optimizer.learning_rate must be positive and finite, got nan"),
        (AdamW, {"max_grad_norm": math.nan}, "optimizer.max_grad_norm must be positive and finite, got nan"),
        (AdamW, {"max_grad_norm": 0.0}, "optimizer.max_grad_norm must be positive and finite, got 0.0"),
        (AdamW, {"head_max_norm": 0.0}, "optimizer.head_max_norm must be positive and finite, got 0.0"),
        (AdamW, {"head_max_norm": math.nan}, "optimizer.head_max_norm must be positive and finite, got nan"),
        (AdamW, {"beta1": 1.0}, "optimizer.beta1 must be in [0, 1), got 1.0"),
        (AdamW, {"beta2": -0.1}, "optimizer.beta2 must be in [0, 1), got -0.1"),
        (AdamW, {"epsilon": 0.0}, "optimizer.epsilon must be positive and finite, got 0.0"),
        (AdamW, {"weight_decay": -1.0}, "optimizer.weight_decay must be finite and not negative, got -1.0"),
        (AdamW, {"layer_decay": 0.0}, "optimizer.layer_decay must be in (0, 1], got 0.0"),
        (AdamW, {"layer_decay": 1.1}, "optimizer.layer_decay must be in (0, 1], got 1.1"),
        (AdamW, {"blocks_lr_ratio": 0.0}, "optimizer.blocks_lr_ratio must be in (0, 1], got 0.0"),
        (AdamW, {"blocks_lr_ratio": 2.0}, "optimizer.blocks_lr_ratio must be in (0, 1], got 2.0"),
        (Constant, {"warmup": -1}, "optimizer.schedule.warmup must be at least 0, got -1"),
        (Noam, {"warmup": 0}, "optimizer.schedule.warmup must be at least 1, got 0"),
        (Cosine, {"min_lr_ratio": 1.5}, "optimizer.schedule.min_lr_ratio must be in [0, 1], got 1.5"),
        (Cosine, {"unit": "tokens", "warmup": 5}, "the schedule cosine in tokens needs optimizer.schedule.end"),
        (
            Cosine,
            {"warmup": 5, "end": 5},
            "optimizer.schedule.end must be greater than optimizer.schedule.warmup, got 5 and 5",
        ),
        (OneCycle, {"start_lr_ratio": 1.5}, "optimizer.schedule.start_lr_ratio must be in [0, 1], got 1.5"),
        (Step, {"interval": 0}, "optimizer.schedule.interval must be at least 1, got 0"),
        (
            CosineRestarts,
            {"interval": 5, "growth": 0.5},
            "optimizer.schedule.growth must be at least 1 and finite, got 0.5",
        ),
        (Plateau, {"decay_factor": 1.0}, "optimizer.schedule.decay_factor must be in (0, 1), got 1.0"),
        (Plateau, {"patience": -1}, "optimizer.schedule.patience must be at least 0, got -1"),
    ],
    ids=str,
)
def test_invalid_config_is_refused_with_field_and_value(kind, fields, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        kind(**fields)


def test_another_kind_keeps_the_values_of_the_fields_that_both_have():
    recipe = load_recipe("gpt_python_docs")
    assert isinstance(recipe.optimizer, Muon)
    changed = update(recipe, **{"optimizer": "sgd", "optimizer.momentum": 0.9, "optimizer.schedule": "noam"})
    assert changed.optimizer == SGD(
        learning_rate=0.006, weight_decay=0.1, momentum=0.9, schedule=Noam(warmup=recipe.optimizer.schedule.warmup)
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"optimizer": "lion"}, "optimizer must be one of adamw, sgd, rmsprop, muon, got 'lion'"),
        ({"optimizer.schedule": "polynomial"}, "optimizer.schedule must be one of constant, noam, step, "),
        ({"optimizer.schedule": "step"}, "optimizer.schedule.interval is missing"),
        ({"optimizer.schedule": "noam", "optimizer.schedule.warmup": 0}, "schedule.warmup must be at least 1, got 0"),
        ({"optimizer": "sgd", "optimizer.beta2": 0.9}, "SGD has no field beta2"),
    ],
    ids=str,
)
def test_kinds_that_do_not_exist_and_fields_that_they_do_not_have_are_refused(changes, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        update(load_recipe("gpt_python_docs"), **changes)


def test_a_kind_that_lacks_its_function_says_so():
    class Undirected(OptimizerConfig):
        pass

    class Shapeless(Schedule):
        pass

    with pytest.raises(TypeError, match=r"Undirected does not define direction\(\)"):
        Undirected().direction(lambda params: params)
    with pytest.raises(TypeError, match=r"Shapeless does not define shape\(\)"):
        Shapeless().rate(1.0, peak=1.0, total_steps=2)
