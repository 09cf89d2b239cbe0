import copy
import fnmatch
import http.server
import json
import re
import shutil
import threading

import chex
import huggingface_hub
import jax
import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file
from safetensors.torch import save_file as save_torch

from jaxnlp.convert import folders
from jaxnlp.convert.folders import PretrainedError, read_tensors
from jaxnlp.convert.pretrained_encoder import read_pretrained, save_pretrained


def test_folders_may_begin_with_the_home_folder(folder, monkeypatch):
    monkeypatch.setenv("HOME", str(folder.parent))
    held = read_pretrained(f"~/{folder.name}")
    save_pretrained("~/written", held)
    chex.assert_trees_all_equal(read_pretrained(folder.parent / "written").params, held.params)


def test_weights_in_several_files_are_read(folder):
    held = read_pretrained(folder)
    tensors = load_file(folder / "model.safetensors")
    names = sorted(tensors)
    places = {name: f"model-{1 + number % 2}.safetensors" for number, name in enumerate(names)}
    for file in set(places.values()):
        save_file({name: tensors[name] for name in names if places[name] == file}, folder / file)
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": dict.fromkeys(places, "nowhere.safetensors")}))
    read_pretrained(folder)  # of both, the one file is read, as by Transformers
    (folder / "model.safetensors").unlink()
    index.write_text(json.dumps({"weight_map": places}))
    chex.assert_trees_all_equal(read_pretrained(folder).params, held.params)
    index.write_text(json.dumps({"weight_map": {**places, "pooler.more": "model-1.safetensors"}}))
    with pytest.raises(PretrainedError, match=r"index.json and the files it names differ in tensors: pooler.more"):
        read_pretrained(folder)
    (folder / "model-2.safetensors").unlink()
    with pytest.raises(PretrainedError, match=r"model-2.safetensors is missing"):
        read_pretrained(folder)
    (folder / "model-2.safetensors").symlink_to("model-2.safetensors")  # cannot be opened, even by a superuser
    with pytest.raises(OSError, match=r"Too many levels of symbolic links.*model-2\.safetensors"):
        read_pretrained(folder)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_read_into_float32(theirs, folder, dtype):
    half = copy.deepcopy(theirs.bert).to(dtype)
    half.save_pretrained(folder)
    params = read_pretrained(folder).params
    assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {np.dtype(np.float32)}
    expected = half.embeddings.word_embeddings.weight.detach().float().numpy()
    np.testing.assert_array_equal(params["tokens"]["embedding"], expected)


def test_a_type_that_numpy_has_not_is_refused_with_those_that_can_be_read(theirs, folder):
    tensors = {name: tensor.to(torch.float8_e4m3fn) for name, tensor in theirs.bert.state_dict().items()}
    save_torch(tensors, folder / "model.safetensors")
    with pytest.raises(PretrainedError, match=r"model.safetensors: \S+ is F8_E4M3, which cannot be read; .*float32"):
        read_pretrained(folder)


def test_a_pickle_is_refused_with_the_command_that_converts_it(folder):
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    settings = json.loads((folder / "config.json").read_text())
    (kind,) = settings["architectures"]
    # AutoModel would drop the head; and a command must not have other content of a file.
    for held, expected in (([kind], kind), (None, "AutoModel"), (["x; import y"], "AutoModel")):
        (folder / "config.json").write_text(json.dumps(settings | {"architectures": held}))
        command = rf"a pickle(?s:.*)import {expected}; {expected}.from_pretrained\('.*'\).save_pretrained"
        with pytest.raises(PretrainedError, match=command):
            read_pretrained(folder)
    (folder / "pytorch_model.bin").rename(folder / "flax_model.msgpack")
    with pytest.raises(PretrainedError, match=r"in flax_model.msgpack, .*from_flax=True\).save_pretrained"):
        read_pretrained(folder)
    (folder / "flax_model.msgpack").unlink()
    with pytest.raises(PretrainedError, match=r"has no weights: neither model.safetensors nor"):
        read_pretrained(folder)


def test_files_that_are_missing_or_damaged_are_named(folder):
    whole = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(PretrainedError, match=r"model.safetensors is not .*, or is damaged; .*download it again"):
        read_pretrained(folder)
    (folder / "model.safetensors").write_bytes(whole)
    read_pretrained(folder)
    (folder / "vocab.txt").unlink()
    with pytest.raises(PretrainedError, match=r"has neither tokenizer.json nor vocab.txt"):
        read_pretrained(folder)
    (folder / "config.json").write_text("{")
    with pytest.raises(PretrainedError, match=r"config.json is not JSON"):
        read_pretrained(folder)
    (folder / "config.json").unlink()
    with pytest.raises(PretrainedError, match=r"is not a pretrained model: it has no config.json"):
        read_pretrained(folder)
    (folder / "config.json").mkdir()
    with pytest.raises(PretrainedError, match=r"it has no config.json"):
        read_pretrained(folder)


def test_a_place_that_is_no_folder_is_refused_without_asking_the_network(tmp_path, monkeypatch):
    def fetch(*_, **__):
        raise AssertionError("asked the network")

    monkeypatch.setattr("huggingface_hub.snapshot_download", fetch)
    for place in (tmp_path / "nowhere", "./nowhere", "a/b/c"):
        with pytest.raises(PretrainedError, match="there is no folder"):
            read_pretrained(place)


def test_a_name_is_fetched_from_the_hub(folder, monkeypatch):
    asked = []

    def fetch(name, allow_patterns, local_files_only=False):
        if not local_files_only:
            asked.append((name, allow_patterns))
        return str(folder)

    monkeypatch.setattr("huggingface_hub.snapshot_download", fetch)
    chex.assert_trees_all_equal(read_pretrained("some/model").params, read_pretrained(folder).params)
    assert asked == [("some/model", list(folders.DOWNLOADED))]
    assert not any(pattern.endswith((".bin", ".pt", "*")) for pattern in asked[0][1])


class Refusing(http.server.BaseHTTPRequestHandler):
    """Answers like a proxy that lets nothing through."""

    def do_GET(self):
        self.send_error(403)

    def log_message(self, *_):
        pass


class HangingUp(Refusing):
    def do_GET(self):
        self.connection.close()


@pytest.fixture(params=[Refusing, HangingUp])
def hub(request):
    """The address of a server that gives nothing away."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), request.param) as server:
        threading.Thread(target=server.serve_forever).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.sweep(1)
def test_a_hub_that_gives_nothing_is_told_and_what_was_fetched_before_is_read(hub, folder, tmp_path, monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", hub)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    with pytest.raises(PretrainedError, match=r"^there is no folder my mo/del, which is no name on the Hugging Face"):
        read_pretrained("my mo/del")
    problem = r"there is no folder other/model, and it could not be fetched from the Hugging Face Hub: \w+: .*[^.]"
    remedy = r"give a folder of weights instead of the name \(in training, --init-from FOLDER\)"
    with pytest.raises(PretrainedError) as caught:
        read_pretrained("other/model")
    assert re.fullmatch(f"{problem}; check the connection, or {remedy}", str(caught.value))  # one line
    place = tmp_path / "hub" / "models--some--model"
    shutil.copytree(folder, place / "snapshots" / "0123")
    (place / "refs").mkdir()
    (place / "refs" / "main").write_text("0123")
    chex.assert_trees_all_equal(read_pretrained("some/model").params, read_pretrained(folder).params)


@pytest.mark.parametrize("endpoint", ["no address", "ftp://nowhere"])
def test_an_address_of_the_hub_that_is_none_is_told(endpoint, tmp_path, monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", endpoint)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    with pytest.raises(PretrainedError, match=r"other/model, and it could not be fetched"):
        read_pretrained("other/model")


def test_encoders_in_folders_below_are_fetched_and_pickles_named_with_their_conversion(folder, monkeypatch):
    """The Hub's patterns are of whole paths."""
    wanted = ["model.safetensors", "0_Transformer/config.json", "0_Transformer/model.safetensors", "modules.json"]
    wanted += ["0_Transformer/vocab.txt", "0_Transformer/tokenizer.json", "1_Pooling/config.json"]
    for name in wanted:
        assert any(fnmatch.fnmatchcase(name, pattern) for pattern in folders.DOWNLOADED), name
    (folder / "model.safetensors").unlink()
    monkeypatch.setattr("huggingface_hub.snapshot_download", lambda name, **_: str(folder))
    for inputs in ("AutoTokenizer", "AutoImageProcessor"):
        for kind in ("BertModel", inputs):
            command = rf"{kind}.from_pretrained\('some/model'\).save_pretrained\('FOLDER'\)"
            with pytest.raises(PretrainedError, match=rf"some/model has no weights as safetensors(?s:.*){command}"):
                read_tensors(folder, "some/model")
        (folder / "preprocessor_config.json").write_text("{}")


@pytest.mark.parametrize(
    "content",
    [
        *("[]", "{}", '{"weight_map": []}', '{"weight_map": {"a": "/dev/zero"}}', '{"weight_map": {"a": ""}}'),
        *('{"weight_map": {"a": "../b.safetensors"}}', '{"weight_map": {"a": "\\ud800.safetensors"}}'),
        *("[" * 100_000, '{"weight_map":' * 500 + "1" + "}" * 500),
    ],
    ids=lambda content: content[:40],
)
def test_an_index_of_another_kind_is_refused(folder, content):
    (folder / "model.safetensors").rename(folder / "model-1.safetensors")
    (folder / "model.safetensors.index.json").write_text(content)
    with pytest.raises(PretrainedError, match=r"model.safetensors.index.json(: expected | is not JSON: .*deep)"):
        read_pretrained(folder)
