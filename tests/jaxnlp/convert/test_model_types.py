import json

import pytest

from jaxnlp.convert import pretrained_task
from jaxnlp.convert.folders import PretrainedError


def test_the_task_of_weights_is_known_before_they_are_read(folder, tmp_path):
    (folder / "model.safetensors").unlink()
    assert pretrained_task(folder) == "jaxnlp.tasks.text_tasks:TextTasks"
    settings = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(settings | {"model_type": "roberta"}))
    with pytest.raises(PretrainedError, match="model_type must be one of bert, got 'roberta'"):
        pretrained_task(folder)
    with pytest.raises(
        PretrainedError, match=r"is neither a training run nor pretrained weights: it has no config.json"
    ):
        pretrained_task(tmp_path)
