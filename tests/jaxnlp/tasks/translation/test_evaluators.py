"""Scores of translations; test_init.py evaluates a run."""

from typing import get_args

import pytest

from jaxnlp.tasks.translation.evaluators import Tokenizer, bleu_by_length, corpus_scores
from jaxnlp.text.subword_training import train_subwords
from jaxnlp.text.translation import SentencePair, TranslationProcessor


def test_scores_know_equal_texts():
    scores, signatures = corpus_scores(["ein rotes Haus steht da"], ["ein rotes Haus steht da"], "13a")
    assert {name: round(metric.value, 6) for name, metric in scores.items()} == {
        "bleu": 100.0,
        "chrf": 100.0,
        "exact_match": 1.0,
    }
    assert signatures.keys() == {"bleu", "chrf"}
    assert corpus_scores(["a b c d"], ["e f g h"], "13a")[0]["exact_match"].value == 0.0


@pytest.mark.parametrize("tokenizer", get_args(Tokenizer))
def test_every_tokenizer_works_with_the_packages_that_are_required(tokenizer):
    scores, signatures = corpus_scores(["das rote Haus, 1.5 世界"], ["das rote Haus, 1.5 世界"], tokenizer)
    assert scores["bleu"].value > 99.0
    assert f"tok:{tokenizer}" in signatures["bleu"]


def test_bleu_by_length_sorts_by_source_tokens():
    words = train_subwords(["one hundred and one", "two", "ninety-one"], "words", 50, minimum_count=1)
    processor = TranslationProcessor(words, words)
    sources = ("one", "one hundred and one", "two", "ninety-one and two")
    examples = [SentencePair(source, "ein rotes Haus da") for source in sources]
    texts = ["ein rotes Haus da", "nichts", "ein rotes Haus da", "nichts"]
    table = bleu_by_length(examples, texts, processor, "13a").content
    assert [row[1] for row in table.rows] == [1, 1, 1, 1]
    assert [round(row[2]) for row in table.rows] == [100, 100, 0, 0]
