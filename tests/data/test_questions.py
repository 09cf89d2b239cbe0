import numpy as np
import pytest

from data import DataError
from data.additions import Additions
from data.questions import ScoredText, text_batch
from jaxnlp.text.questions import Question

CONFIG = Additions(digits=1, held_out=10)


@pytest.fixture(scope="module")
def vocabulary():
    return CONFIG.load(0).processor


def test_a_question_is_followed_by_mask_answer_mask_and_scored_on_the_answer(vocabulary):
    text = CONFIG.readable_text(Question("8+9", "17"), vocabulary)
    assert text.positions == 6
    batch = text_batch(vocabulary, [text], 1, 6)
    assert vocabulary.decode(batch["tokens"][0]) == "8+9\u204717"
    assert vocabulary.decode(batch["targets"][0]) == "+9\u204717\u2047"
    assert batch["loss_mask"].tolist() == [[False, False, False, True, True, True]]


def test_texts_of_a_batch_have_padding_on_both_sides(vocabulary):
    texts = [ScoredText("12+3", 2, 2), ScoredText("45")]
    batch = text_batch(vocabulary, texts, 3, 6)
    one, two, three, four, five, plus = vocabulary.encode("12345+").tolist()
    assert batch["tokens"].tolist() == [[0, 0, one, two, plus, 0], [four, 0, 0, 0, 0, 0], [0] * 6]
    assert batch["targets"].tolist() == [[0, 0, two, plus, three, 0], [five, 0, 0, 0, 0, 0], [0] * 6]
    assert batch["loss_mask"].tolist() == [[False, False, False, True, True, False], [True] + [False] * 5, [False] * 6]
    assert [text.positions for text in texts] == [5, 1]
    assert {name: (value.shape, value.dtype) for name, value in text_batch(vocabulary, [], 2, 4).items()} == {
        "tokens": ((2, 4), np.int32),
        "targets": ((2, 4), np.int32),
        "loss_mask": ((2, 4), bool),
    }


def test_questions_that_the_model_cannot_read_are_skipped_counted_and_keep_their_lines(vocabulary, tmp_path, caplog):
    path = tmp_path / "asked.tsv"
    path.write_text(f"1+2\t3\nx+2\t3\n{'1+' * 9}\t9\n8+9\t17\n")
    split = CONFIG.read_file(path, vocabulary)
    assert [one.text for one in split.examples] == ["1+2", "8+9"]
    assert split.in_rows(["x", "y"], "") == ["x", "", "", "y"]
    assert np.any(split.batches[0]["loss_mask"], axis=1).sum() == 2
    assert f"{path}: questions too long, or with characters outside the vocabulary, which are skipped: 2 of 4" in str(
        caplog.messages
    )
    path.write_text(f"1+2\t3\n1+2\tx\n1\t{'1' * 20}\n8+9\t17\n")
    split = CONFIG.read_file(path, vocabulary)
    assert [one.answer for one in split.examples] == ["3", "x", "1" * 20, "17"]  # wrong, whatever is answered
    assert split.rows.tolist() == [0, 3]
    assert np.any(split.batches[0]["loss_mask"], axis=1).sum() == 2
    assert f"{path}: questions whose place is too long, or has characters outside the vocabulary" in caplog.text
    assert "which are wrong, and not in the loss: 2 of 4, the first in line 2" in caplog.text
    path.write_text("1+2\tx\n8+9\n")
    assert len(CONFIG.read_file(path, vocabulary).unlabelled.examples) == 1
    assert [len(CONFIG.read_file(path, vocabulary).examples), len(CONFIG.read_file(path, vocabulary).batches)] == [1, 0]
    path.write_text("x\n")
    with pytest.raises(DataError, match=r"asked.tsv, line 1: .*not in the vocabulary"):
        CONFIG.read_file(path, vocabulary)
