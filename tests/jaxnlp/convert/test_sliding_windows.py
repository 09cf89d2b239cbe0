import json

import pytest

from jaxnlp.convert.folders import PretrainedError
from jaxnlp.convert.sliding_windows import window_fields, window_settings
from jaxnlp.convert.tensors import WeightsError
from jaxnlp.models.llama import LlamaConfig

FILE = "config.json"


@pytest.mark.parametrize(
    ("settings", "some", "local", "window"),
    [
        ({}, False, (0, 1, 2), 4_096),
        ({"sliding_window": None}, False, (), 128),
        ({"sliding_window": 8}, True, (), 128),
        ({"sliding_window": 8, "use_sliding_window": True}, True, (), 128),
        ({"sliding_window": 8, "use_sliding_window": True, "max_window_layers": 1}, True, (1, 2), 8),
        (
            {
                "sliding_window": 8,
                "use_sliding_window": True,
                "layer_types": ["sliding_attention", "full_attention", "full_attention"],
            },
            True,
            (0,),
            8,
        ),
    ],
    ids=str,
)
def test_settings_say_which_layers_are_local_and_are_written_as_they_are_read(settings, some, local, window):
    config = LlamaConfig(num_layers=3, **window_fields(FILE, {"num_hidden_layers": 3, **settings}, some=some))
    assert (config.local_layers, config.local_window) == (local, window)
    written = json.loads(json.dumps(window_settings(config, some=some)))
    assert LlamaConfig(num_layers=3, **window_fields(FILE, {"num_hidden_layers": 3, **written}, some=some)) == config


def test_what_a_family_does_not_have_is_refused():
    with pytest.raises(WeightsError, match=r"Mistral does not support model.local_layers = \(1,\)"):
        window_settings(LlamaConfig(num_layers=2, local_layers=(1,)), some=False)
    for settings, named in (
        ({"layer_types": ["full_attention"]}, "for each of 2 layers"),
        ({"sliding_window": "8", "use_sliding_window": True, "max_window_layers": 0}, "at least 1, got '8'"),
    ):
        with pytest.raises(PretrainedError, match=named):
            window_fields(FILE, {"num_hidden_layers": 2, **settings}, some=True)
