import unicodedata
from typing import get_args

import pytest

from jaxnlp.tasks.translation.scores import Tokenizer, corpus_scores


def test_scores_know_equal_texts():
    scores, signatures = corpus_scores(["ein rotes Haus steht da"], ["ein rotes Haus steht da"], "13a")
    assert {name: round(metric.value, 6) for name, metric in scores.items()} == {
        "bleu": 100.0,
        "chrf": 100.0,
        "exact_match": 1.0,
    }
    assert signatures.keys() == {"bleu", "chrf"}
    assert corpus_scores(["a b c d"], ["e f g h"], "13a")[0]["exact_match"].value == 0.0


def test_the_normal_form_of_accents_does_not_count():
    texts = ["le caf\u00e9 est ferm\u00e9 l'\u00e9t\u00e9", "la for\u00eat br\u00fble"]
    composed = corpus_scores(texts, texts, "13a")
    assert corpus_scores(texts, [unicodedata.normalize("NFD", text) for text in texts], "13a") == composed
    assert composed[0]["exact_match"].value == 1.0


@pytest.mark.parametrize("tokenizer", get_args(Tokenizer))
def test_every_tokenizer_works_with_the_packages_that_are_required(tokenizer):
    scores, signatures = corpus_scores(["das rote Haus, 1.5 世界"], ["das rote Haus, 1.5 世界"], tokenizer)
    assert scores["bleu"].value > 99.0
    assert f"tok:{tokenizer}" in signatures["bleu"]


def test_texts_that_end_as_tokenized_ones_give_no_advice_about_an_argument_of_sacrebleu(caplog):
    texts = ["ein rotes Haus ."] * 200
    scores, signatures = corpus_scores(texts, texts, "13a")
    assert scores["bleu"].value == pytest.approx(100.0)
    assert signatures["bleu"] == corpus_scores(["ein Haus"], ["ein Haus"], "13a")[1]["bleu"]
    assert not caplog.messages
