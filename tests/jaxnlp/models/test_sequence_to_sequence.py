import dataclasses

import pytest

from jaxnlp.corpus import DataConfig
from jaxnlp.models import ModelConfig
from jaxnlp.models.attention_lstm import AttentionLSTMConfig
from jaxnlp.models.encoder_decoder import EncoderDecoderConfig
from jaxnlp.models.gpt import GPTConfig
from jaxnlp.models.sequence_to_sequence import SequenceToSequenceConfig
from jaxnlp.tasks.text_to_text import TextToText


class Facts(DataConfig):
    max_length = 8
    parts = ()
    joint = stateful = False


@dataclasses.dataclass(frozen=True)
class Outside(SequenceToSequenceConfig):
    """A family outside the library."""


@dataclasses.dataclass(frozen=True)
class Unrelated(ModelConfig):
    """A family outside the library that reads one text."""


@pytest.mark.parametrize(
    "config", [AttentionLSTMConfig(), EncoderDecoderConfig(), Outside()], ids=lambda config: type(config).__name__
)
def test_the_task_takes_every_config_of_this_base(config):
    TextToText().check(config, Facts())


@pytest.mark.parametrize("config", [GPTConfig(), Unrelated()], ids=lambda config: type(config).__name__)
def test_the_task_refuses_every_other_config(config):
    name = type(config).__name__
    with pytest.raises(
        ValueError, match=f"needs a model that reads a source, such as EncoderDecoderConfig, got {name}"
    ):
        TextToText().check(config, Facts())


def test_a_family_without_a_module_is_named():
    with pytest.raises(TypeError, match=r"Outside cannot build a model: it does not define build\(\)"):
        Outside().build(None)
