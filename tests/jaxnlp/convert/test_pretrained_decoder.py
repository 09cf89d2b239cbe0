import dataclasses
import json

import numpy as np
import pytest

from jaxnlp.convert.folders import PretrainedError
from jaxnlp.convert.pretrained_decoder import read_decoder, save_decoder
from jaxnlp.text.byte_pairs import BytePairs
from tests.decoder_folders import write_folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("decoder") / "gpt2"
    write_folder(path)
    return path


def test_a_folder_that_is_not_empty_is_not_written(folder, monkeypatch):
    monkeypatch.setenv("HOME", str(folder.parent))
    for path in (folder, f"~/{folder.name}"):
        with pytest.raises(FileExistsError, match=f"{folder} exists and is not empty"):
            save_decoder(path, read_decoder(folder))


def test_a_vocabulary_without_an_end_of_text_is_written_without_one(folder, tmp_path):
    held = read_decoder(folder)
    vocabulary = BytePairs.of(["ab ab"], 258)
    config = dataclasses.replace(held.config, padded_vocabulary_size=341)
    save_decoder(tmp_path / "out", held._replace(vocabulary=vocabulary, config=config))
    settings = json.loads((tmp_path / "out" / "config.json").read_text())
    assert settings["bos_token_id"] is settings["eos_token_id"] is None
    again = read_decoder(tmp_path / "out")
    assert again.vocabulary == vocabulary
    assert again.config.padded_vocabulary_size == 341
    np.testing.assert_array_equal(again.params["positions"], held.params["positions"])


def test_folders_without_a_tokenizer_or_weights_are_refused(folder, tmp_path):
    (tmp_path / "config.json").write_text((folder / "config.json").read_text())
    with pytest.raises(PretrainedError, match=r"neither tokenizer\.json nor vocab\.json and merges\.txt"):
        read_decoder(tmp_path)
    (tmp_path / "tokenizer.json").write_text((folder / "tokenizer.json").read_text())
    with pytest.raises(PretrainedError, match=r"has no weights: neither"):
        read_decoder(tmp_path)
    (tmp_path / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes())
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(PretrainedError, match=r"adapter_config\.json: not supported"):
        read_decoder(tmp_path)
