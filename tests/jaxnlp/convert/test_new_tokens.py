"""Models with further tokens: as those that Transformers resizes."""

import dataclasses
from types import SimpleNamespace

import jax
import numpy as np
import pytest
import torch
import transformers
from flax.traverse_util import flatten_dict

import jaxnlp
from jaxnlp.convert import rows_of_last_tokens, with_new_tokens
from jaxnlp.convert.new_tokens import _new_rows
from jaxnlp.models import Adopted
from jaxnlp.models.bert import Bert
from jaxnlp.models.bert_classifier import BertClassifierConfig
from jaxnlp.models.bert_pretraining import BertPretrainingConfig
from jaxnlp.models.classifier import ClassifierConfig
from jaxnlp.models.tagger import TaggerConfig
from jaxnlp.nn.compute import EXACT
from jaxnlp.tasks import Trained
from jaxnlp.tasks.masked_language_model import MaskedLanguageModel
from jaxnlp.text.characters import CharacterVocabulary
from jaxnlp.text.tagger_processor import TaggerProcessor
from tests import bart_folders, decoder_folders, encoder_decoder_folders, encoder_folders, marian_folders

NEW = ("covidix", "<code>", "zZq")
SENTENCE = "The covidix cat sat <code> zZq."


def with_tokens(trained, config=None, task=None, *, seed=0):
    """A pretrained model with the new tokens, as a run begins with it."""
    adopted = with_new_tokens((config or trained.model.config).adopt(trained), NEW, seed=seed)
    exact = dataclasses.replace(adopted.config, compute=EXACT)
    params = jax.tree.map(np.asarray, adopted.params)
    return Trained(task or trained.task, exact.build(adopted.processor), params, adopted.processor, name="more")


def assert_like_transformers(kind, folder, ours, out, rows, call):
    """Ours is the model of Transformers after it was resized, and its new rows are drawn likewise.

    Args:
      kind: the class in Transformers.
      ours, out: our model with the new tokens, and where it is written.
      rows: of the embeddings.
      call: the logits of both, for the ids of the sentence.
    """
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    tokenizer.add_tokens(list(NEW))
    theirs = kind.from_pretrained(folder).eval()
    before = {name: tensor.clone() for name, tensor in theirs.state_dict().items()}
    theirs.resize_token_embeddings(rows)
    ours.task.commands["export"](out)(ours)
    read, report = kind.from_pretrained(out, output_loading_info=True)
    assert not any(report.values())
    resized = 0
    for name, tensor in read.state_dict().items():
        held = before[name]
        if held.shape == tensor.shape:
            assert torch.equal(tensor, held), name
            continue
        resized += 1
        axis = int(held.shape[0] == tensor.shape[0])
        old, new = tensor.movedim(axis, 0).split([held.shape[axis], rows - held.shape[axis]])
        assert torch.equal(old, held.movedim(axis, 0)), name
        drawn = theirs.state_dict()[name]
        # Both are drawn, with standard deviations of about 1e-5.
        torch.testing.assert_close(drawn.movedim(axis, 0)[len(old) :], new, atol=1e-4, rtol=0)
        drawn.copy_(tensor)
    assert resized
    ids = tokenizer(SENTENCE, return_tensors="pt")["input_ids"]
    assert transformers.AutoTokenizer.from_pretrained(out)(SENTENCE)["input_ids"] == ids[0].tolist()
    with torch.no_grad():
        found, expected = call(ours, theirs, ids)
    np.testing.assert_allclose(found, expected, atol=1e-5)


def apply(trained, *arguments):
    return jax.jit(trained.model.apply)({"params": trained.params}, *arguments)


@pytest.mark.parametrize(
    "family", ["gpt2", "llama", pytest.param("qwen3", marks=pytest.mark.thorough)]
)  # a tied output layer, and one of its own
def test_a_decoder_with_new_tokens_is_that_of_transformers(family, tmp_path):
    tied = {} if family == "gpt2" else {"tie_word_embeddings": False}
    decoder_folders.write_folder(tmp_path / "theirs", "", family, **tied)
    ours = with_tokens(jaxnlp.load_pretrained(tmp_path / "theirs"))

    def call(ours, theirs, ids):
        assert ours.processor.encode(SENTENCE).tolist() == ids[0].tolist()
        return apply(ours, ids.numpy()), theirs(ids).logits

    assert_like_transformers(
        transformers.AutoModelForCausalLM, tmp_path / "theirs", ours, tmp_path / "out", ours.processor.size, call
    )


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("made", "changes", "rows"),
    [
        (bart_folders, {"vocab_size": 342}, 344),  # one row had no token
        pytest.param(
            encoder_decoder_folders, {"vocab_size": 100, "tie_word_embeddings": False}, 102, marks=pytest.mark.thorough
        ),
    ],
)
def test_an_encoder_decoder_with_new_tokens_is_that_of_transformers(made, changes, rows, tmp_path):
    model, _ = made.write_folder(tmp_path / "theirs", **changes)
    if made is bart_folders:
        model.final_logits_bias.copy_(torch.randn(model.final_logits_bias.shape))
        model.save_pretrained(tmp_path / "theirs")
    ours = with_tokens(jaxnlp.load_pretrained(tmp_path / "theirs"))
    assert ours.processor.shared

    def call(ours, theirs, ids):
        batch = ours.processor([SENTENCE], [SENTENCE])
        assert batch["source"].tolist() == ids.tolist()
        found = apply(ours, batch["source"], batch["inputs"])
        return found, theirs(ids, decoder_input_ids=torch.tensor(batch["inputs"])).logits

    kind = transformers.AutoModelForSeq2SeqLM
    assert_like_transformers(kind, tmp_path / "theirs", ours, tmp_path / "out", rows, call)


def test_rows_without_a_token_are_used_first_and_stay(tmp_path):
    encoder_decoder_folders.write_folder(tmp_path)  # five rows have no token
    trained = jaxnlp.load_pretrained(tmp_path)
    ours = with_tokens(trained)
    assert ours.model.config.padded_vocabulary_size == trained.model.config.padded_vocabulary_size == 104
    np.testing.assert_array_equal(ours.params["tokens"]["embedding"], trained.params["tokens"]["embedding"])


def test_an_encoder_with_new_tokens_is_that_of_transformers_with_its_output_layer(tmp_path):
    encoder_folders.write_folder("bert", tmp_path / "theirs", "ForPreTraining")
    trained = jaxnlp.load_pretrained(tmp_path / "theirs")
    ours = with_tokens(trained, BertPretrainingConfig(compute=EXACT), MaskedLanguageModel())

    def call(ours, theirs, ids):
        assert ours.processor(SENTENCE)["tokens"].tolist() == ids.tolist()
        model = Bert(ours.model.config.encoder, ours.processor.size, EXACT)
        output = jax.jit(model.apply)({"params": ours.params["encoder"]}, ids.numpy())
        return output.hidden, theirs.bert(ids).last_hidden_state

    kind = transformers.AutoModelForPreTraining
    assert_like_transformers(kind, tmp_path / "theirs", ours, tmp_path / "out", ours.processor.size, call)


def test_new_rows_have_the_mean_and_the_covariance_of_the_others():
    draw = np.random.default_rng(0)
    rows = np.float32(draw.normal(size=(60, 4)) @ draw.normal(size=(4, 4)) + draw.normal(size=4))
    new = _new_rows(rows, 40_000, draw).astype(np.float64)
    covariance = np.cov(rows.T, bias=True)
    scale = np.sqrt(np.diag(covariance))
    np.testing.assert_allclose((new.mean(0) - rows.mean(0)) / scale, 0.0, atol=1e-6)
    found = np.cov(new.T) / 1e-9
    np.testing.assert_allclose(found / np.outer(scale, scale), covariance / np.outer(scale, scale), atol=0.05)
    theirs = torch.nn.Embedding(40_000, 4)
    old = torch.nn.Embedding(60, 4, _weight=torch.tensor(rows))
    torch.manual_seed(0)
    transformers.PreTrainedModel._init_added_embeddings_weights_with_mean(None, old, theirs, 60, 40_000)
    expected = np.cov(theirs.weight.detach().double().numpy().T) / 1e-9
    np.testing.assert_allclose(found / np.outer(scale, scale), expected / np.outer(scale, scale), atol=0.05)


def test_fewer_tokens_than_dimensions_have_no_such_covariance_and_new_rows_are_the_mean():
    rows = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(_new_rows(rows, 2, np.random.default_rng(0)), [rows.mean(0)] * 2)


def test_equal_seeds_give_equal_rows_and_each_table_its_own(tmp_path):
    decoder_folders.write_folder(tmp_path, "", "llama", tie_word_embeddings=False)
    trained = jaxnlp.load_pretrained(tmp_path)
    one, again, other = (with_tokens(trained, seed=seed).params for seed in (3, 3, 4))
    jax.tree.map(np.testing.assert_array_equal, one, again)
    table, head = ("tokens", "embedding"), ("head", "kernel")
    for name, leaf in (table, head):
        assert np.any(one[name][leaf] != other[name][leaf])
    noise = [one["tokens"]["embedding"][-3:] - one["tokens"]["embedding"][:-3].mean(0)]
    noise += [one["head"]["kernel"].T[-3:] - one["head"]["kernel"].T[:-3].mean(0)]
    assert np.abs(np.corrcoef(noise[0].ravel(), noise[1].ravel())[0, 1]) < 0.7


def test_each_table_of_tokens_has_the_rows_of_the_last_tokens_and_a_table_of_words_has_none(tmp_path):
    marian_folders.write_folder(tmp_path / "marian")
    trained = jaxnlp.load_pretrained(tmp_path / "marian")
    size, rows = trained.processor.source.size, rows_of_last_tokens(trained.model.config, trained.processor, 2)
    found = {path: rows(path) for path in flatten_dict(trained.params)}
    assert found["tokens", "embedding"] == (slice(size - 2, size),)
    assert {path[0] for path, index in found.items() if index is not None} <= {"tokens", "output_bias"}
    tagger = TaggerConfig(bert=True, word_width=4)
    vocabulary = SimpleNamespace(size=9)
    processor = TaggerProcessor(SimpleNamespace(pieces=vocabulary), ("a",), "none")
    rows = rows_of_last_tokens(tagger, processor, 2)
    assert rows(("encoder", "bert", "tokens", "embedding")) == (slice(7, 9),)
    assert rows(("encoder", "words", "embedding")) is None


def test_models_that_cannot_learn_new_tokens_are_refused(tmp_path):
    encoder_folders.write_folder("bert", tmp_path / "bert")
    trained = jaxnlp.load_pretrained(tmp_path / "bert")
    adopted = BertClassifierConfig(pooling="mean").adopt(trained)
    with pytest.raises(ValueError, match=r"but optimizer\.frozen keeps encoder/tokens/embedding"):
        with_new_tokens(adopted, NEW, seed=0, frozen=lambda path: path[0] == "encoder")
    with pytest.raises(ValueError, match=r"with a pretrained tokenizer, got the processor CharacterVocabulary$"):
        with_new_tokens(Adopted(ClassifierConfig(), {}, CharacterVocabulary("ab")), NEW, seed=0)
    marian_folders.write_folder(tmp_path / "marian")
    with pytest.raises(ValueError, match="a MarianTokenizer takes no new tokens"):
        with_tokens(jaxnlp.load_pretrained(tmp_path / "marian"))
