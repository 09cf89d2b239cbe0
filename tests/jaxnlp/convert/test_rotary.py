from pathlib import Path

import pytest

from jaxnlp.convert.folders import PretrainedError
from jaxnlp.convert.rotary import rotary_fields, rotary_settings
from jaxnlp.models.llama import LlamaConfig

LLAMA3 = {"rotary_original_length": 64, "rotary_fewest_turns": 2.0, "rotary_most_turns": 8.0}


@pytest.mark.parametrize(
    "fields",
    [{}, {"rotary_base": 500.0}, {"rotary_factor": 4.0}, {"rotary_factor": 4.0, **LLAMA3}],
    ids=str,
)
def test_what_is_written_is_read_back(fields):
    config = LlamaConfig(**fields)
    settings = rotary_settings(config)
    assert LlamaConfig(**rotary_fields(Path("config.json"), settings)) == config


def test_settings_that_a_file_leaves_out_have_the_defaults_of_transformers():
    assert rotary_fields(Path("config.json"), {}) == {"rotary_base": 10_000.0}


@pytest.mark.parametrize("kind", ["yarn", ["linear"], {}])
def test_other_types_of_scaling_are_refused(kind):
    with pytest.raises(PretrainedError, match=r"config.json: rotary positions that are not supported: rope_type "):
        rotary_fields(Path("config.json"), {"rope_scaling": {"rope_type": kind}})
