import ast
import dataclasses
import inspect
import itertools
import json
import re
from typing import get_type_hints

import numpy as np
import pytest

from data.character_text import CharacterText
from data.text_table import TextTable
from data.text_windows import TextWindows
from data.word_text import WordText
from jaxnlp.cli.options import options_of
from jaxnlp.models.bert_classifier import BertClassifierConfig
from jaxnlp.models.gpt import GPTConfig
from jaxnlp.saving.serialization import ConfigError, differences, from_json, to_json
from jaxnlp.tasks.classification import Classification
from jaxnlp.tasks.language_model import LanguageModel
from train.config import TrainConfig, update
from train.optimizer import AdamW, OptimizerConfig
from train.optimizer.schedules import Constant, Cosine, CosineRestarts, Linear, OneCycle, Plateau, Step
from train.recipes import load_recipe, recipe_names


def config(**changes):
    return TrainConfig(
        **{
            "recipe": "r",
            "data": CharacterText(sequence_length=16),
            "model": GPTConfig(context_length=16),
            "task": LanguageModel(),
        }
        | changes
    )


@pytest.mark.parametrize(
    "field",
    [
        "accumulation_steps",
        "total_steps",
        "evaluate_every_steps",
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
    with pytest.raises(ValueError, match=re.escape(f"ema_decay must be in (0, 1), got {decay}")):
        config(ema_decay=decay)


@pytest.mark.parametrize("seed", [-1, 2**32])
def test_seed_fits_an_unsigned_word(seed):
    assert config(seed=2**32 - 1).seed == 2**32 - 1
    with pytest.raises(ValueError, match=f"seed must be (at least 0|less than 4294967296), got {seed}"):
        config(seed=seed)


def test_inputs_longer_than_the_model_reads_are_refused_before_anything_is_loaded():
    with pytest.raises(
        ValueError, match=r"inputs have up to 17 tokens, but the model reads at most 16; lower data.sequence_len"
    ):
        config(data=CharacterText(sequence_length=17))


@pytest.mark.parametrize("name", recipe_names())
def test_the_options_of_lengths_that_a_message_names_are_there(name):
    recipe = load_recipe(name)
    for part in (recipe.data, recipe.model):
        if part.max_length is not None:
            assert part.length_field.replace("_", "-") in {option.name for option in options_of(part)}


def test_a_model_that_starts_from_nothing_is_refused_on_streams():
    with pytest.raises(ValueError, match=r"rows of this data continue from batch to batch"):
        config(data=WordText(sequence_length=16))  # its rows also vary in length, beyond the 16 of the model
    assert config(data=WordText(sequence_length=16, mode="windows")).data.max_length == 16


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"nonfinite": "skp"}, "nonfinite must be one of stop, skip, got 'skp'; did you mean skip"),
        ({"init_ignore": ("classifier.",)}, "init_ignore applies only to pretrained weights"),
        ({"init_new_tokens": ("new",)}, "init_new_tokens applies only to pretrained weights"),
        ({"init_from": "x", "init_new_tokens": ("a", " ")}, "init_new_tokens must have texts, got ' '"),
        ({"init_from": "x", "init_new_tokens": ("a", "b", "a")}, "init_new_tokens has 'a' twice"),
        ({"stop_after": 0}, "stop_after must be at least 1, got 0"),
        (
            {"stop_after": 3, "evaluate_every_steps": 9, "total_steps": 9},
            "stop_after needs evaluations before the last",
        ),
    ],
)
def test_choices_and_options_that_nothing_reads_are_checked(fields, message):
    with pytest.raises(ValueError, match=message):
        config(**fields)


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (Constant, {"unit": "epochs"}),
        (CharacterText, {"source": "books"}),
        (WordText, {"mode": "tracks"}),
    ],
)
def test_every_config_checks_its_choices_however_it_is_made(kind, fields):
    (name,) = fields
    with pytest.raises(ValueError, match=rf"{name} must be one of"):
        kind(**fields)


def test_configs_are_values():
    assert config() == config()
    assert hash(config()) == hash(config())
    assert config(seed=1) != config()
    with pytest.raises(dataclasses.FrozenInstanceError):
        config().seed = 1


def test_config_reads_back_equal_from_json():
    original = config(ema_decay=0.5, task=LanguageModel(sample_prompt="ü\n"), nonfinite="skip")
    assert from_json(json.loads(json.dumps(to_json(original))), TrainConfig) == original


def test_config_read_from_json_is_checked_like_any_other():
    written = to_json(config()) | {"total_steps": 0}
    with pytest.raises(ConfigError, match="total_steps must be at least 1, got 0"):
        from_json(written, TrainConfig)


@pytest.mark.parametrize(
    "kind", [TrainConfig, OptimizerConfig, AdamW, CosineRestarts, LanguageModel, GPTConfig, TextWindows]
)
def test_every_field_that_is_a_value_is_explained_on_the_command_line(kind):
    source = ast.parse(inspect.getsource(kind)).body[0].body
    explained = {
        field.target.id
        for field, below in itertools.pairwise(source)
        if isinstance(field, ast.AnnAssign) and isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
    }
    values = {
        field.name
        for field in dataclasses.fields(kind)
        if field.name in inspect.get_annotations(kind)
        and not dataclasses.is_dataclass(get_type_hints(kind)[field.name])
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


def test_update_reads_the_numbers_of_a_loop_over_an_array():
    steps, rate = np.array([7]), np.array([1e-3], np.float32)
    changed = update(config(), total_steps=steps[0], **{"optimizer.learning_rate": rate[0]})
    assert (type(changed.total_steps), changed.optimizer.learning_rate) == (int, float(rate[0]))


def test_update_names_a_field_that_does_not_exist():
    with pytest.raises(ValueError, match="no field widht; did you mean width"):
        update(config(), **{"model.widht": 3})


def test_a_run_keeps_one_average():
    assert config(nt_asgd_patience=5).nt_asgd_patience == 5
    with pytest.raises(ValueError, match="ema_decay and nt_asgd_patience exclude each other"):
        config(nt_asgd_patience=5, ema_decay=0.9)
    with pytest.raises(ValueError, match="nt_asgd_patience must be at least 0, got -1"):
        config(nt_asgd_patience=-1)


def test_a_sequential_schedule_reaches_each_part():
    def in_turn(parts, steps):
        data = TextTable(parts=parts, pairs="apart", schedule="sequential", schedule_steps=50)
        return config(data=data, model=BertClassifierConfig(), task=Classification(), total_steps=steps)

    in_turn(("sst", "sts"), 100)
    with pytest.raises(ValueError, match=r"schedule_steps 50 never reaches all of sst, sts within total_steps 99"):
        in_turn(("sst", "sts"), 99)


@pytest.mark.parametrize(
    ("optimizer", "same"),
    [
        (AdamW(), False),
        (AdamW(schedule=Constant()), True),
        (AdamW(schedule=Step(interval=5)), True),
        (AdamW(schedule=Linear()), False),
        (AdamW(schedule=OneCycle()), False),
        (AdamW(schedule=Linear(end=500)), True),
        (AdamW(schedule=Plateau()), False),
        (AdamW(schedule=Cosine(end=500)), True),
        (AdamW(schedule=Cosine(unit="tokens", end=500)), True),
    ],
)
def test_the_length_of_a_run_may_change_where_the_learning_rate_does_not_depend_on_it(optimizer, same):
    short, long = (config(optimizer=optimizer, total_steps=steps).identity() for steps in (1000, 2000))
    assert (short == long) == same


def test_a_plateau_depends_on_when_the_run_is_evaluated():
    optimizer = AdamW(schedule=Plateau())
    often, rarely = (config(optimizer=optimizer, evaluate_every_steps=steps).identity() for steps in (10, 20))
    assert often != rarely


def test_compute_and_intervals_are_not_part_of_a_runs_identity():
    changes = {"model.compute.remat": True, "log_every_steps": 3, "evaluate_every_steps": 7}
    assert config().identity() == update(config(), **changes).identity()
    assert config().identity() != config(seed=1).identity()


def test_the_evaluation_interval_is_part_of_the_identity_where_evaluations_start_averaging():
    often, rarely = (config(nt_asgd_patience=1, evaluate_every_steps=steps).identity() for steps in (2, 7))
    assert often != rarely
    constant = AdamW(schedule=Constant())
    longer = [config(nt_asgd_patience=1, optimizer=constant, total_steps=steps).identity() for steps in (4, 9)]
    assert longer[0] != longer[1]
