"""What an optimizer's config refuses."""

import math
import re

import pytest

from train.optimizer import OptimizerConfig


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"name": "lion"}, "optimizer.name must be one of adamw, adam, muon, sgd, got 'lion'"),
        (
            {"schedule": "polynomial"},
            "optimizer.schedule must be one of cosine, constant, linear, step, exponential, cosine_restarts, "
            "one_cycle, noam, plateau, got 'polynomial'",
        ),
        ({"schedule": "step"}, "the schedule step needs optimizer.interval_steps, at least 1, got None"),
        (
            {"schedule": "exponential", "interval_steps": 0},
            "the schedule exponential needs optimizer.interval_steps, at least 1, got 0",
        ),
        (
            {"schedule": "cosine_restarts", "interval_steps": 5, "warmup_tokens": 9},
            "the schedule cosine_restarts counts steps; leave optimizer.warmup_tokens unset",
        ),
        (
            {"schedule": "cosine_restarts", "interval_steps": 5, "restart_growth": 0.5},
            "optimizer.restart_growth must be at least 1 and finite, got 0.5",
        ),
        ({"schedule": "plateau", "decay_factor": 1.0}, "optimizer.decay_factor must be between 0 and 1, got 1.0"),
        ({"schedule": "plateau", "plateau_patience": -1}, "optimizer.plateau_patience must not be negative, got -1"),
        ({"schedule": "one_cycle", "start_lr_ratio": 1.5}, "optimizer.start_lr_ratio must be in [0, 1], got 1.5"),
        ({"learning_rate": 0.0}, "optimizer.learning_rate must be positive and finite, got 0.0"),
        ({"learning_rate": math.nan}, "optimizer.learning_rate must be positive and finite, got nan"),
        ({"max_grad_norm": math.nan}, "optimizer.max_grad_norm must be positive and finite, got nan"),
        ({"max_grad_norm": 0.0}, "optimizer.max_grad_norm must be positive and finite, got 0.0"),
        (
            {"head_max_norm": 0.0},
            "optimizer.head_max_norm must be positive and finite, got 0.0",
        ),
        ({"head_max_norm": math.nan}, "optimizer.head_max_norm must be positive and finite, got nan"),
        ({"beta1": 1.0}, "optimizer.beta1 must be in [0, 1), got 1.0"),
        ({"beta2": -0.1}, "optimizer.beta2 must be in [0, 1), got -0.1"),
        ({"epsilon": 0.0}, "optimizer.epsilon must be positive and finite, got 0.0"),
        ({"weight_decay": -1.0}, "optimizer.weight_decay must be finite and not negative, got -1.0"),
        ({"layer_decay": 0.0}, "optimizer.layer_decay must be in (0, 1], got 0.0"),
        ({"layer_decay": 1.1}, "optimizer.layer_decay must be in (0, 1], got 1.1"),
        ({"blocks_lr_ratio": 0.0}, "optimizer.blocks_lr_ratio must be in (0, 1], got 0.0"),
        ({"blocks_lr_ratio": 2.0}, "optimizer.blocks_lr_ratio must be in (0, 1], got 2.0"),
        ({"min_lr_ratio": 1.5}, "optimizer.min_lr_ratio must be in [0, 1], got 1.5"),
        (
            {"schedule": "noam"},
            "optimizer.schedule noam starts with a warmup; set optimizer.warmup_steps, such as 4000",
        ),
        ({"warmup_tokens": 5}, "optimizer.warmup_tokens needs optimizer.decay_tokens with the schedule cosine"),
        ({"decay_tokens": 5, "warmup_steps": 1}, "or optimizer.warmup_steps and optimizer.decay_steps, not both"),
        ({"decay_tokens": 5, "decay_steps": 1}, "or optimizer.warmup_steps and optimizer.decay_steps, not both"),
        ({"warmup_steps": -1}, "optimizer.warmup_steps must not be negative, got -1"),
        (
            {"warmup_steps": 5, "decay_steps": 5},
            "optimizer.decay_steps must be greater than optimizer.warmup_steps, got 5 and 5",
        ),
        (
            {"warmup_tokens": 9, "decay_tokens": 5},
            "optimizer.decay_tokens must be greater than optimizer.warmup_tokens, got 5 and 9",
        ),
    ],
)
def test_invalid_config_is_refused_with_field_and_value(fields, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        OptimizerConfig(**fields)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"muon_momentum": 0.9}, "optimizer.muon_momentum applies only to muon; set it to 0.95, got 0.9"),
        ({"momentum": 0.9}, "optimizer.momentum applies only to sgd; set it to 0.0, got 0.9"),
        (
            {"name": "sgd", "beta1": 0.8},
            "optimizer.beta1 applies only to adamw, adam and muon; set it to 0.9, got 0.8",
        ),
        ({"name": "sgd", "beta2": 0.99}, "optimizer.beta2 applies only to adamw, adam and muon; set it to 0.999"),
        ({"name": "sgd", "epsilon": 1e-6}, "optimizer.epsilon applies only to adamw, adam and muon; set it to 1e-08"),
        (
            {"name": "adam", "weight_decay": 0.1},
            "optimizer.weight_decay applies only to adamw, muon and sgd; set it to 0.0, got 0.1",
        ),
        (
            {"schedule": "constant", "decay_steps": 9},
            "optimizer.decay_steps applies only to the schedules cosine, linear and one_cycle; set it to None, got 9",
        ),
        (
            {"schedule": "constant", "decay_tokens": 9},
            "optimizer.decay_tokens applies only to the schedules cosine, linear and one_cycle; set it to None",
        ),
        (
            {"schedule": "constant", "min_lr_ratio": 0.0},
            "optimizer.min_lr_ratio applies only to the schedules with a floor; set it to 0.1, got 0.0",
        ),
        ({"start_lr_ratio": 0.5}, "optimizer.start_lr_ratio applies only to the schedule one_cycle; set it to 0.04"),
        (
            {"interval_steps": 5},
            "optimizer.interval_steps applies only to the schedules step, exponential and cosine_restarts; set it to",
        ),
        ({"decay_factor": 0.5}, "optimizer.decay_factor applies only to the schedules step, exponential and plateau"),
        ({"restart_growth": 2.0}, "optimizer.restart_growth applies only to the schedule cosine_restarts; set it to"),
        ({"plateau_patience": 5}, "optimizer.plateau_patience applies only to the schedule plateau; set it to 3"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_an_option_that_nothing_reads_is_refused(fields, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        OptimizerConfig(**fields)
