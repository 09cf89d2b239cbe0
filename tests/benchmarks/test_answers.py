"""Both sides of the benchmarks of answers give the same answers."""

import numpy as np
import pytest
import torch
import transformers

from benchmarks import answers, first_answer, one_text
from benchmarks.case import OURS
from configs.multi30k_transformer import get_config
from jaxnlp.tasks.translation.search import max_target_length
from train.config import update

PIECES = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "film", "is", "a", "quiet", "time", ",", ".")


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    """A tiny BERT in place of all-MiniLM-L6-v2."""
    folder = tmp_path_factory.mktemp("encoder")
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    torch.manual_seed(0)
    transformers.BertModel(transformers.BertConfig(vocab_size=len(PIECES), **sizes)).save_pretrained(folder)
    (folder / "vocab.txt").write_text("".join(f"{piece}\n" for piece in PIECES))
    (folder / "tokenizer_config.json").write_text('{"do_lower_case": true}')
    return str(folder)


def answers_of(cases, variant):
    """The answers of both sides to a case."""
    (case,) = (case for case in cases if case.variant == variant)
    return [case.implementations[name]()() for name in (OURS, answers.OPPONENT)]


@pytest.mark.parametrize("variant", ["vector, 32 bits", "vector of 500 characters, 32 bits"])
def test_both_sides_compute_the_same_vector(encoder, monkeypatch, variant):
    monkeypatch.setattr(answers, "minilm", lambda: encoder)
    ours, theirs = answers_of(one_text.cases(), variant)
    assert ours.shape == theirs.shape == (8,)
    np.testing.assert_allclose(ours, theirs, atol=1e-5)
    assert np.ptp(ours) > 0.1


@pytest.mark.thorough
def test_both_sides_compute_the_same_label(encoder, monkeypatch):
    monkeypatch.setattr(answers, "minilm", lambda: encoder)
    ours, (theirs,) = answers_of(one_text.cases(), "label, 32 bits")
    assert ours.label == theirs["label"]
    assert ours.probability == pytest.approx(theirs["score"], abs=1e-5)
    assert abs(ours.probability - 0.5) > 0.01


@pytest.mark.thorough
def test_both_sides_find_the_same_entities(encoder, monkeypatch):
    monkeypatch.setattr(answers, "minilm", lambda: encoder)
    ours, theirs = answers_of(one_text.cases(), "entities, 32 bits")
    assert [(one.type, one.start, one.stop) for one in ours] == [
        (one["entity_group"], one["start"], one["end"]) for one in theirs
    ]
    assert ours


@pytest.mark.thorough
def test_both_sides_write_translations_of_the_same_length(monkeypatch):
    tiny = {"num_layers": 1, "num_heads": 2, "width": 8, "feed_forward_width": 8}
    config = update(get_config(), **{f"model.{name}": value for name, value in tiny.items()})
    monkeypatch.setattr("configs.multi30k_transformer.get_config", lambda: config)
    monkeypatch.setattr(answers, "WORDS", 60)
    for found in answers_of(first_answer.cases(), "translation"):
        assert len(found.split()) == answers.TARGET


def test_the_opponent_writes_as_many_tokens_as_ours_may():
    assert max_target_length(len(answers.SOURCE.split()) + 1) == answers.TARGET


def test_a_process_reads_models_from_the_given_folder_or_writes_and_removes_its_own(monkeypatch, tmp_path):
    monkeypatch.setattr(answers, "WRITERS", {"model": lambda folder: folder.mkdir()})
    with answers.written("model") as own:
        assert own.is_dir()
    assert not own.exists()
    answers.write_models(tmp_path)
    monkeypatch.setenv(answers.FOLDER, str(tmp_path))
    with answers.written("model") as given:
        assert given == tmp_path / "model"
    assert given.is_dir()
