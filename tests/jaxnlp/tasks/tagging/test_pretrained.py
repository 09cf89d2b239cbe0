"""Taggers of Transformers."""

import numpy as np
import pytest
import torch
import transformers

from jaxnlp.__main__ import main
from jaxnlp.convert import PretrainedError
from jaxnlp.runs import load
from jaxnlp.tasks.bert_verbs.word_export import ExportWords
from jaxnlp.tasks.tagging import Tagging
from jaxnlp.tasks.tagging.inference import label_sentences
from jaxnlp.text.tagger_processor import TaggedSentence
from tests.encoder_folders import write_folder

LABELS = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")
SETTINGS = {
    "id2label": dict(enumerate(LABELS)),
    "label2id": {label: index for index, label in enumerate(LABELS)},
}
SENTENCES = [["The", "big", "dog", "ate", "in", "Rome", "."], ["Cats", "sat", "."]]


@pytest.mark.thorough
@pytest.mark.parametrize(
    "family",
    ["bert", "roberta", "xlm-roberta", "distilbert", "electra", pytest.param("modernbert", marks=pytest.mark.thorough)],
)
def test_words_have_the_labels_that_their_first_tokens_have_there(family, tmp_path):
    model, _ = write_folder(family, tmp_path, "ForTokenClassification", **SETTINGS)
    found = load(tmp_path)
    assert found.processor.scheme == "bio"
    for words, labelled in zip(SENTENCES, label_sentences(found, SENTENCES), strict=True):
        batch = found.processor.batch([found.processor.encode(TaggedSentence("1", tuple(words)))], 1, 40)
        with torch.no_grad():
            tokens, mask = torch.as_tensor(batch["pieces"]), torch.as_tensor(batch["piece_mask"]).int()
            shares = torch.softmax(model(input_ids=tokens.long(), attention_mask=mask).logits, -1)[0].numpy()
        rows = shares[batch["first_pieces"][0, : len(words)]]
        assert labelled.labels == [LABELS[index] for index in rows.argmax(axis=1)]
        np.testing.assert_allclose(labelled.confidence, rows.max(axis=1), atol=1e-5)


def test_a_tagger_of_transformers_tags_begins_another_one_and_is_exported_again(tmp_path, capsys):
    model, _ = write_folder("bert", tmp_path / "theirs", "ForTokenClassification", **SETTINGS)
    assert main(["predict", str(tmp_path / "theirs"), "The big dog ate in Rome."]) == 0
    assert capsys.readouterr().out
    found = load(tmp_path / "theirs")
    ExportWords(tmp_path / "again")(found)
    again = transformers.AutoModelForTokenClassification.from_pretrained(tmp_path / "again")
    assert again.config.id2label == SETTINGS["id2label"]
    tokens = torch.tensor([[2, 6, 7, 9, 3]])
    with torch.no_grad():
        np.testing.assert_array_equal(again(tokens).logits, model(tokens).logits)
    adopted = found.model.config.adopt(found)
    assert set(adopted.matching_heads(found.processor)) == {"scores"}


def test_labels_that_do_not_fit_the_head_are_refused(tmp_path):
    write_folder("bert", tmp_path, "ForTokenClassification", num_labels=3)
    file = tmp_path / "config.json"
    file.write_text(file.read_text().replace("LABEL_2", "LABEL_1"))
    with pytest.raises(PretrainedError, match=r"labels must be distinct, .* got LABEL_0, LABEL_1, LABEL_1"):
        load(tmp_path)
    with pytest.raises(ValueError, match="this model is read whole, got tensors to ignore: classifier"):
        Tagging.from_pretrained(tmp_path, ignore=("classifier.",))
