import json
import types

import pytest

from jaxnlp.tasks.classification.kept_threshold import THRESHOLD_FILE, kept_threshold


def test_the_threshold_is_that_of_the_checkpoints_step(tmp_path, capsys):
    trained = types.SimpleNamespace(folder=tmp_path, step=60)
    assert kept_threshold(trained) is kept_threshold(types.SimpleNamespace(folder=None)) is None
    (tmp_path / THRESHOLD_FILE).write_text(json.dumps({"threshold": 0.3, "step": 60}))
    assert kept_threshold(trained) == 0.3
    (tmp_path / THRESHOLD_FILE).write_text(json.dumps({"threshold": 0.3, "step": 3}))
    assert kept_threshold(trained) is None
    assert "it was chosen for step 3, but the checkpoint is of step 60" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["[]", "{}", "0.5 0.5"])
def test_other_files_are_refused(tmp_path, text):
    (tmp_path / THRESHOLD_FILE).write_text(text)
    with pytest.raises(ValueError, match=r"threshold.json is not a file of the evaluator threshold"):
        kept_threshold(types.SimpleNamespace(folder=tmp_path, step=60))
