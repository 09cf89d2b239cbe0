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


@pytest.mark.parametrize("tokenizer", get_args(Tokenizer))
def test_every_tokenizer_works_with_the_packages_that_are_required(tokenizer):
    scores, signatures = corpus_scores(["das rote Haus, 1.5 世界"], ["das rote Haus, 1.5 世界"], tokenizer)
    assert scores["bleu"].value > 99.0
    assert f"tok:{tokenizer}" in signatures["bleu"]
