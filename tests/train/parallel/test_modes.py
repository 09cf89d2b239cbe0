"""Every family takes the same steps in every mode: on several devices as on one, with dropout on."""

import dataclasses
import functools
from typing import NamedTuple

import jax
import numpy as np
import pytest

from jaxnlp.models.llama import LlamaConfig
from jaxnlp.nn import shards
from jaxnlp.ops.checks import UnavailableError
from jaxnlp.ops.flash import flash_attention
from tests.guards import test_families as guards
from tests.jaxnlp.tasks.test_init import CONFIGS, FURTHER
from tests.train.parallel.modes import MODES, first_state, largest_difference, trained
from train.config import update
from train.recipes import load_recipe
from train.step import TrainState

files = guards.files


def text_cnn(files):
    del files
    return update(load_recipe("text_cnn"), **{"model.embedding_width": 8, "model.feature_maps": 6})


def slow_lstm(files):
    """Its rate is made for 750 epochs of Penn Treebank: here the loss would rise, and rounding with it."""
    return update(guards.lstm_streams(files), **{"optimizer.learning_rate": 2.0})


def t5(files):
    changes = {
        **{"positions": "shared_relative_bias", "normalization": "rms", "use_bias": False, "gated": True},
        **{"scale_attention": False, "scale_embeddings": False, "scale_logits": True, "embeddings": "shared"},
        **{"num_layers": 2, "num_heads": 2, "head_width": 6},
    }
    return update(CONFIGS["Translation"](files), **{f"model.{name}": value for name, value in changes.items()})


def llama(files):
    config = CONFIGS["LanguageModel"](files)
    shape = {"num_layers": 2, "num_heads": 4, "num_key_heads": 2, "width": 16, "head_norm": True, "qkv_bias": True}
    rates = {name: rate for name, rate in vars(config.model).items() if name.endswith("dropout_rate")}
    model = LlamaConfig(context_length=config.model.context_length, compute=config.model.compute, **shape, **rates)
    return dataclasses.replace(config, model=model)


RATE = {"optimizer.learning_rate": 1e-2}
"""Of a GPT: at the guard's rate of 3e-2 rounding is amplified."""
FAMILIES = {
    "GPT": lambda files: update(CONFIGS["LanguageModel"](files), **RATE),
    "Llama": llama,
    "LSTM": slow_lstm,
    "Perceiver": CONFIGS["QuestionAnswering"],
    "synthesizer": FURTHER["synthesizer"],
    "BERT": guards.bert_text_tasks_surgery,
    "BERT pretraining": CONFIGS["MaskedLanguageModel"],
    "Transformer translator": CONFIGS["Translation"],
    "T5": t5,
    "attention LSTM": FURTHER["attention_lstm"],
    "CRF tagger": CONFIGS["Tagging"],
    "parser": CONFIGS["Parsing"],
    "BiLSTM parser": FURTHER["recurrent_parser"],
    "graph parser": FURTHER["graph_parser"],
    "TextCNN": text_cnn,
    "ViT": lambda files: update(CONFIGS["Classification"](files), **{"model.num_heads": 2}),
}


@pytest.fixture(scope="module", autouse=True)
def standard_promotion():
    """As users have it."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


@pytest.fixture(scope="module")
def on_one_device(files):
    """Trains a family on one device, once."""
    return functools.cache(lambda family: Trained.of(FAMILIES[family](files)))


@pytest.fixture(scope="module")
def options_on_one_device(files):
    """Trains with an option on one device, once."""
    return functools.cache(lambda option: Trained.of(with_option(option, files)))


class Trained(NamedTuple):
    """On one device: the state before the first step, the loss at each step, and the state after the last one."""

    start: TrainState
    losses: np.ndarray
    state: TrainState

    @classmethod
    def of(cls, config):
        start = first_state(config)
        return cls(start, *trained(config, start=start))


def assert_takes_the_same_steps(config, mode, one, start=None, rtol=1e-5, of_parameters=1e-4):
    found, shared = trained(config, *MODES[mode], start=start)
    np.testing.assert_allclose(found, one.losses, rtol=rtol)
    for name in ("params", "ema"):
        assert largest_difference(getattr(one.state, name), getattr(shared, name)) < of_parameters


@pytest.mark.thorough
@pytest.mark.parametrize(("family", "mode"), [("GPT", "tensor and fsdp"), ("CRF tagger", "fsdp")])
def test_several_devices_take_the_twenty_steps_of_one(family, mode, on_one_device, files):
    assert_takes_the_same_steps(FAMILIES[family](files), mode, on_one_device(family))


@pytest.mark.thorough
@pytest.mark.parametrize("mode", [mode for mode in MODES if mode != "tensor"])
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_takes_the_same_steps_in_every_mode(family, mode, on_one_device, files):
    one = on_one_device(family)
    assert_takes_the_same_steps(FAMILIES[family](files), mode, one, one.start)


def gpt(files):
    return update(guards.gpt_characters(files), accumulation_steps=1, ema_decay=None, **RATE)


OPTIONS = {
    "accumulation and an average": {"accumulation_steps": 2, "ema_decay": 0.9},
    "recomputed layers": {"model.compute.remat": True},
    "scanned layers": {"model.compute.scan_layers": True},
    "scanned and recomputed layers": {"model.compute.scan_layers": True, "model.compute.remat": True},
    # At the higher rate of the others, a change of 1e-4 of the first parameters changes later losses by 1 %.
    "bfloat16": {
        "model.compute.dtype": "bfloat16",
        "model.compute.matmul_dtype": None,
        "optimizer.learning_rate": 1e-3,
    },
    "Muon": {"optimizer": "muon"},
    "layer-wise rates": {"optimizer.layer_decay": 0.7},
    "LoRA": {"optimizer.lora_rank": 2},
    "untied embeddings": {"model.tie_embeddings": False},
    "frozen encoder": {"optimizer.frozen": ("encoder",), "optimizer.layer_decay": 1.0},
}
"""Of a GPT, and the last one of a BERT."""

ATTENTION = "model.compute.attention"
PLAIN = {
    "plain attention of scanned and recomputed layers": OPTIONS["scanned and recomputed layers"] | {ATTENTION: "vjp"},
    "plain attention": {ATTENTION: "vjp"},
}
"""Options to compare the kernels of flash attention with."""


def with_option(option, files):
    base = guards.bert_text_tasks if option == "frozen encoder" else gpt
    return update(base(files), **(OPTIONS | PLAIN)[option])


@pytest.mark.thorough
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("option", OPTIONS)
def test_every_option_takes_the_same_steps_in_every_mode(option, mode, files, options_on_one_device):
    config, one = with_option(option, files), options_on_one_device(option)
    # Sums of rounded numbers in another order.
    tolerances = {"bfloat16": (1e-3, 0.01), "Muon": (1e-4, 3e-3)}.get(option, (1e-5, 1e-4))
    assert_takes_the_same_steps(config, mode, one, one.start, *tolerances)


@pytest.fixture
def flash_calls(monkeypatch):
    """Lets JAX's interpreter compute the kernels of flash attention. A list: at each call the devices that share rows.

    The functions that make a state, and the tests' state of one device, also call it."""
    calls = []

    def interpreted(*packed, **settings):
        calls.append(shards.rows_of_all_shards(1))
        return flash_attention(*packed, **settings, interpret=True)

    monkeypatch.setattr("jaxnlp.ops.attention_kernels.cuda_capability", lambda: (9, 0))
    monkeypatch.setattr("jaxnlp.ops.flash.flash_attention", interpreted)
    return calls


@pytest.mark.thorough
@pytest.mark.parametrize("mode", ["fsdp", *(mode for mode in MODES if mode != "fsdp")])
@pytest.mark.parametrize("option", PLAIN)
def test_flash_attention_takes_the_steps_of_plain_attention_or_is_refused_with_the_reason(
    option, mode, files, options_on_one_device, flash_calls
):
    """In modes with the axis `model`, which refuse it, `auto` takes plain attention."""
    one = options_on_one_device(option)
    auto, flash = (update(with_option(option, files), **{ATTENTION: name}) for name in ("auto", "flash"))
    if not mode.startswith("tensor"):
        assert_takes_the_same_steps(flash, mode, one, one.start)
        assert max(flash_calls) == 8
        return
    with pytest.raises(UnavailableError, match="computes all heads, and the devices of the mesh's axis model"):
        trained(flash, *MODES[mode], steps=1)
    assert_takes_the_same_steps(auto, mode, one, one.start)
    assert max(flash_calls) == 1


@pytest.mark.thorough
@pytest.mark.parametrize("family", ["GPT", "synthesizer", "Transformer translator"])
def test_kernels_that_are_rounded_before_they_are_gathered_change_no_bit(family, files, monkeypatch):
    compute = {"scan_layers": True, "remat": True, "dtype": "bfloat16", "matmul_dtype": None}
    config = update(FAMILIES[family](files), **{f"model.compute.{name}": value for name, value in compute.items()})
    losses, state = trained(config, *MODES["tensor and fsdp"], steps=3)
    gathered = shards.gathered
    monkeypatch.setattr(shards, "gathered", lambda params, of_kernels=None: gathered(params))
    expected, plain = trained(config, *MODES["tensor and fsdp"], steps=3)
    np.testing.assert_array_equal(losses, expected)
    assert largest_difference(plain.params, state.params) == 0
