import json

import pytest

from jaxnlp.convert import is_pretrained, pretrained_types
from jaxnlp.convert.folders import PretrainedError


def test_the_type_of_weights_is_known_before_they_are_read(folder, tmp_path):
    (folder / "model.safetensors").unlink()
    assert pretrained_types(folder) == ["BertModel", "bert"]
    settings = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(settings | {"model_type": None}))
    with pytest.raises(PretrainedError, match=r"config\.json: expected a text as model_type, got None"):
        pretrained_types(folder)
    with pytest.raises(
        PretrainedError, match=r"is neither a training run nor pretrained weights: it has no config.json"
    ):
        pretrained_types(tmp_path)


def test_weights_are_recognised_by_their_config_or_by_modules_with_the_encoder_in_a_subfolder(folder, tmp_path):
    assert is_pretrained(folder)
    assert not is_pretrained(tmp_path)
    (tmp_path / "modules.json").write_text(
        json.dumps([{"path": folder.name, "type": "sentence_transformers.models.Transformer"}])
    )
    assert is_pretrained(tmp_path)
    assert pretrained_types(tmp_path) == ["BertModel", "bert"]
