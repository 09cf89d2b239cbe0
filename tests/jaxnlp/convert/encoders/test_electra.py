import json

import numpy as np
import torch
import transformers

from jaxnlp.convert.pretrained_encoder import read_pretrained, save_pretrained
from tests.encoder_folders import TEXTS, write_folder


def test_a_discriminator_keeps_its_head_of_replaced_tokens(tmp_path):
    """The released weights of ELECTRA are discriminators."""
    model, tokenizer = write_folder("electra", tmp_path / "theirs", "ForPreTraining")
    held = read_pretrained(tmp_path / "theirs")
    assert held.heads.keys() == {"replaced"}
    assert not held.config.use_pooler
    kernel = model.discriminator_predictions.dense_prediction.weight.detach().numpy()
    np.testing.assert_array_equal(held.heads["replaced"]["output"]["kernel"], kernel.T)
    save_pretrained(tmp_path / "again", held)
    assert json.loads((tmp_path / "again" / "config.json").read_text())["architectures"] == ["ElectraForPreTraining"]
    again, report = transformers.AutoModelForPreTraining.from_pretrained(tmp_path / "again", output_loading_info=True)
    assert not any(report.values())
    batch = tokenizer(TEXTS, padding=True, return_tensors="pt")
    with torch.no_grad():
        assert torch.equal(again(**batch).logits, model(**batch).logits)
