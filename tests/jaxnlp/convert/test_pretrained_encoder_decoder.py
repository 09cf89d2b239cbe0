import pytest

from jaxnlp.convert.folders import PretrainedError
from jaxnlp.convert.pretrained_encoder_decoder import read_encoder_decoder, save_encoder_decoder
from tests.encoder_decoder_folders import write_folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("encoder_decoder") / "t5"
    write_folder(path)
    return path


def test_a_folder_that_is_not_empty_is_not_written(folder, monkeypatch):
    monkeypatch.setenv("HOME", str(folder.parent))
    for path in (folder, f"~/{folder.name}"):
        with pytest.raises(FileExistsError, match=f"{folder} exists and is not empty"):
            save_encoder_decoder(path, read_encoder_decoder(folder))


def test_embeddings_without_a_token_are_kept(folder, tmp_path):
    held = read_encoder_decoder(folder)
    assert (held.vocabulary.size, held.config.padded_vocabulary_size) == (99, 104)
    assert held.params["tokens"]["embedding"].shape == (104, 16)
    save_encoder_decoder(tmp_path / "out", held)
    assert read_encoder_decoder(tmp_path / "out").config.padded_vocabulary_size == 104


def test_folders_without_a_tokenizer_or_weights_are_refused(folder, tmp_path):
    (tmp_path / "config.json").write_text((folder / "config.json").read_text())
    with pytest.raises(PretrainedError, match=r"has no tokenizer\.json"):
        read_encoder_decoder(tmp_path)
    (tmp_path / "tokenizer.json").write_text((folder / "tokenizer.json").read_text())
    (tmp_path / "tokenizer_config.json").write_text((folder / "tokenizer_config.json").read_text())
    with pytest.raises(PretrainedError, match=r"has no weights: neither"):
        read_encoder_decoder(tmp_path)
    (tmp_path / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes())
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(PretrainedError, match=r"adapter_config\.json: not supported"):
        read_encoder_decoder(tmp_path)
