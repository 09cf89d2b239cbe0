import ast
import dataclasses
import inspect
import itertools
import json
import re
from typing import get_type_hints

import pytest
from data.text_tasks import TextTasksData
from train.objectives import OBJECTIVES, LossConfig

from data.character_text import CharacterText
from jaxnlp.models.decoder import DecoderConfig
from jaxnlp.models.gpt import GPTConfig
from jaxnlp.models.recurrent_lm import RecurrentLMConfig
from jaxnlp.models.text_tasks import TextTasksConfig
from jaxnlp.serialization import ConfigError, differences, from_json, to_json
from train.config import TrainConfig, update
from train.optimizer import OptimizerConfig

PACKAGES = ("jaxnlp", "data", "train")


def config(**changes):
    return TrainConfig(
        **{"recipe": "r", "data": CharacterText(sequence_length=16), "model": GPTConfig(context_length=16)} | changes
    )


@pytest.mark.parametrize(
    "field",
    [
        "accumulation_steps",
        "total_steps",
        "evaluate_every_steps",
        "sample_length_tokens",
        "log_every_steps",
        "checkpoint_every_steps",
        "keep_checkpoints",
    ],
)
def test_counts_below_one_are_refused_by_name(field):
    assert getattr(config(**{field: 1}), field) == 1
    with pytest.raises(ValueError, match=f"^{field} must be at least 1, got 0$"):
        config(**{field: 0})


@pytest.mark.parametrize("decay", [0.0, 1.0, -0.5, float("nan")])
def test_moving_average_needs_a_decay_between_zero_and_one(decay):
    with pytest.raises(ValueError, match=re.escape(f"ema_decay must lie in (0, 1) or be None, got {decay}")):
        config(ema_decay=decay)


@pytest.mark.parametrize("seed", [-1, 2**32])
def test_seed_fits_an_unsigned_word(seed):
    assert config(seed=2**32 - 1).seed == 2**32 - 1
    with pytest.raises(ValueError, match=re.escape(f"seed must lie in [0, 2^32), got {seed}")):
        config(seed=seed)


def test_windows_longer_than_the_context_are_refused_with_both_lengths_and_the_remedy():
    expected = r"data.sequence_length 17 exceeds model.context_length 16; .*--model.context-length 17"
    with pytest.raises(ValueError, match=expected):
        config(data=CharacterText(sequence_length=17))


def test_every_objective_can_be_chosen_and_no_other():
    assert set(get_type_hints(TrainConfig)["objective"].__args__) == set(OBJECTIVES)


def test_configs_are_values():
    assert config() == config()
    assert hash(config()) == hash(config())
    assert config(seed=1) != config()
    with pytest.raises(dataclasses.FrozenInstanceError):
        config().seed = 1


def test_config_reads_back_equal_from_json():
    original = config(ema_decay=0.5, sample_prompt="ü\n", nonfinite="skip")
    assert from_json(json.loads(json.dumps(to_json(original))), TrainConfig, packages=PACKAGES) == original


def test_config_read_from_json_is_checked_like_any_other():
    written = to_json(config()) | {"total_steps": 0}
    with pytest.raises(ConfigError, match="total_steps must be at least 1, got 0"):
        from_json(written, TrainConfig, packages=PACKAGES)


@pytest.mark.parametrize("kind", [TrainConfig, OptimizerConfig, LossConfig, DecoderConfig, CharacterText])
def test_every_field_that_is_a_value_is_explained_on_the_command_line(kind):
    source = ast.parse(inspect.getsource(kind)).body[0].body
    explained = {
        field.target.id
        for field, below in itertools.pairwise(source)
        if isinstance(field, ast.AnnAssign) and isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
    }
    values = {
        name for name in inspect.get_annotations(kind) if not dataclasses.is_dataclass(get_type_hints(kind)[name])
    }
    assert len(values) > 2
    assert values <= explained


def test_update_replaces_fields_at_any_depth_and_keeps_the_rest():
    changed = update(config(), total_steps=7, **{"model.width": 64, "data.batch_size": 3})
    assert differences(to_json(config()), to_json(changed)) == [
        "data.batch_size: 32 -> 3",
        "model.width: 128 -> 64",
        "total_steps: 1000 -> 7",
    ]


def test_update_checks_the_new_values():
    with pytest.raises(ValueError, match="num_heads must divide"):
        update(config(), **{"model.num_heads": 3})


def test_update_names_a_field_that_does_not_exist():
    with pytest.raises(TypeError, match="widht"):
        update(config(), **{"model.widht": 3})


def test_a_run_keeps_one_average():
    assert config(average_after_stall=5).average_after_stall == 5
    with pytest.raises(ValueError, match="a run keeps one average: give ema_decay or average_after_stall"):
        config(average_after_stall=5, ema_decay=0.9)
    with pytest.raises(ValueError, match="average_after_stall must be at least 0 or None, got -1"):
        config(average_after_stall=-1)


def test_batches_whose_rows_carry_state_are_not_cut():
    with pytest.raises(
        ValueError, match=r"next_token_carried takes a batch whole.*accumulation_steps must be 1, got 2"
    ):
        config(model=RecurrentLMConfig(), objective="next_token_carried", accumulation_steps=2)


def test_recurrent_models_and_their_objective_belong_together():
    with pytest.raises(ValueError, match=r"next_token_carried is for recurrent models.*got next_token for RecurrentLM"):
        config(model=RecurrentLMConfig())
    with pytest.raises(ValueError, match="got next_token_carried for GPTConfig"):
        config(objective="next_token_carried")
    with pytest.raises(ValueError, match=r"loss\.activation_regularisation and its temporal kin are for recurrent"):
        config(loss=LossConfig(activation_regularisation=1.0))
    with pytest.raises(ValueError, match=r"loss\.task_weights are for text_tasks, got \(1\.0,\) for next_token"):
        config(loss=LossConfig(task_weights=(1.0,)))


def test_surgery_needs_several_tasks_in_a_step():
    tasks = ("sst", "sts")
    fields = {"model": TextTasksConfig(tasks=tasks), "objective": "text_tasks", "gradient_surgery": True}
    assert config(data=TextTasksData(tasks=tasks, schedule="together"), **fields).gradient_surgery
    message = r"give --data\.schedule together and several tasks, got the schedule round_robin and .* \('sst', 'sts'\)"
    with pytest.raises(ValueError, match=message):
        config(data=TextTasksData(tasks=tasks), **fields)
    with pytest.raises(ValueError, match=r"got the schedule together and the tasks \('sst',\)"):
        config(data=TextTasksData(schedule="together"), **fields | {"model": TextTasksConfig()})
    with pytest.raises(ValueError, match=r"got the schedule None and the tasks None"):
        config(gradient_surgery=True)


TEXT_TASKS = {"model": TextTasksConfig(), "objective": "text_tasks"}


def test_text_tasks_ask_data_and_model_the_same_and_take_no_sample():
    fields = TEXT_TASKS
    assert config(data=TextTasksData(), **fields).data.tasks == ("sst",)
    with pytest.raises(ValueError, match=r"data\.tasks \('sts',\) are not model\.tasks \('sst',\)"):
        config(data=TextTasksData(tasks=("sts",)), **fields)
    with pytest.raises(ValueError, match=r"text_tasks is for models of text tasks.*got next_token for TextTasksConfig"):
        config(data=TextTasksData(), model=TextTasksConfig())
    with pytest.raises(ValueError, match=r"loss\.sampled_tokens is for language models"):
        config(data=TextTasksData(), loss=LossConfig(sampled_tokens=1), **fields)


def test_text_tasks_refuse_what_their_losses_have_no_use_for():
    for name, value in (("z_loss", 1e-4), ("chunk_tokens", 8)):
        with pytest.raises(ValueError, match=rf"loss\.{name} is for losses over vocabularies"):
            config(data=TextTasksData(), **TEXT_TASKS, loss=LossConfig(**{name: value}))
    smoothed = LossConfig(label_smoothing=0.1)
    config(data=TextTasksData(), **TEXT_TASKS, loss=smoothed)
    with pytest.raises(
        ValueError, match=r"needs one for each of sst, got \(1.0, 2.0\); give --loss.task-weights with 1"
    ):
        config(data=TextTasksData(), **TEXT_TASKS, loss=LossConfig(task_weights=(1.0, 2.0)))
    pairs = {"data": TextTasksData(tasks=("sts",)), "model": TextTasksConfig(tasks=("sts",))}
    with pytest.raises(ValueError, match=r"label_smoothing is for classifications, and sts has none"):
        config(**TEXT_TASKS | pairs, loss=smoothed)


def test_a_sequential_schedule_comes_to_each_task():
    def in_turn(tasks, steps):
        data = TextTasksData(tasks=tasks, schedule="sequential", schedule_steps=50)
        return config(**TEXT_TASKS | {"data": data, "model": TextTasksConfig(tasks=tasks)}, total_steps=steps)

    in_turn(("sst", "sts"), 100)
    in_turn(("sst",), 20)
    with pytest.raises(ValueError, match=r"schedule_steps 50 does not come to each of sst, sts within total_steps 99"):
        in_turn(("sst", "sts"), 99)
