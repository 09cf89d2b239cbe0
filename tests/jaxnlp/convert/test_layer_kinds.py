from pathlib import Path

import pytest

from jaxnlp.convert.folders import PretrainedError
from jaxnlp.convert.layer_kinds import layer_kind_fields, layer_kind_settings
from jaxnlp.models.bert import BertConfig

FILE = Path("config.json")


@pytest.mark.parametrize(
    "fields", [{}, {"rotary_base": 500.0}, {"local_layers": (0, 2), "local_rotary_base": 7.0}], ids=str
)
def test_what_is_written_is_read_back(fields):
    config = BertConfig(num_layers=3, positions="rotary", **fields)
    settings = {"num_hidden_layers": 3} | layer_kind_settings(config)
    assert BertConfig(num_layers=3, positions="rotary", **layer_kind_fields(FILE, settings)) == config


def test_settings_that_a_file_leaves_out_have_the_defaults_of_transformers():
    expected = {"local_layers": (1, 2, 4), "rotary_base": 160_000.0, "local_rotary_base": 10_000.0}
    assert layer_kind_fields(FILE, {"num_hidden_layers": 5}) == expected


@pytest.mark.parametrize("kinds", [["chunked_attention"], [[]], {}])
def test_every_setting_that_does_not_fit_is_named(kinds):
    settings = {"num_hidden_layers": 1, "layer_types": kinds, "global_attn_every_n_layers": 0}
    settings |= {"rope_parameters": {"full_attention": {"rope_type": "yarn"}, "others": {}}, "local_rope_theta": "1"}
    with pytest.raises(PretrainedError) as caught:
        layer_kind_fields(FILE, settings)
    for named in ("layer_types", "global_attn_every_n_layers 0", "rope_type 'yarn'", "others", "rope_theta of sliding"):
        assert named in str(caught.value)
