"""Blocks of the report; test_init.py evaluates a run."""

from jaxnlp.tasks.translation.evaluators import bleu_by_length
from jaxnlp.text.subword_training import train_subwords
from jaxnlp.text.translation import SentencePair, TranslationProcessor


def test_bleu_by_length_sorts_by_source_tokens():
    words = train_subwords(["one hundred and one", "two", "ninety-one"], "words", 50, minimum_count=1)
    processor = TranslationProcessor(words, words)
    sources = ("one", "one hundred and one", "two", "ninety-one and two")
    examples = [SentencePair(source, "ein rotes Haus da") for source in sources]
    texts = ["ein rotes Haus da", "nichts", "ein rotes Haus da", "nichts"]
    table = bleu_by_length(examples, texts, processor, "13a").content
    assert [row[1] for row in table.rows] == [1, 1, 1, 1]
    assert [round(row[2]) for row in table.rows] == [100, 100, 0, 0]
