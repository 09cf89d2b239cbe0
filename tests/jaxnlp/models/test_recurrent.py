import dataclasses

import pytest

from jaxnlp.corpus import DataConfig
from jaxnlp.models.gpt import GPTConfig
from jaxnlp.models.recurrent import RecurrentModelConfig
from jaxnlp.models.recurrent_lm import RecurrentLMConfig
from jaxnlp.tasks.language_model import LanguageModel, RecurrentLanguageModel


class Facts(DataConfig):
    max_length = 8
    parts = ()
    joint = stateful = False


@dataclasses.dataclass(frozen=True)
class Outside(RecurrentModelConfig):
    """A family outside the library."""


@pytest.mark.parametrize("config", [RecurrentLMConfig(), Outside()], ids=lambda config: type(config).__name__)
def test_the_task_that_carries_states_takes_every_config_of_this_base(config):
    RecurrentLanguageModel(chunk_tokens=4).check(config, Facts())
    with pytest.raises(ValueError, match="of a recurrent model need the task RecurrentLanguageModel"):
        LanguageModel(chunk_tokens=4).check(config, Facts())


def test_the_task_that_carries_states_refuses_every_other_config():
    LanguageModel(chunk_tokens=4).check(GPTConfig(), Facts())
    with pytest.raises(ValueError, match="needs a recurrent model, got GPTConfig; use the task LanguageModel"):
        RecurrentLanguageModel().check(GPTConfig(), Facts())
