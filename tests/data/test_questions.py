import numpy as np
import pytest

from data import DataError
from data.additions import Additions
from jaxnlp.text.questions import Question

CONFIG = Additions(digits=1, held_out=10)


@pytest.fixture(scope="module")
def vocabulary():
    return CONFIG.load(0).processor


def test_a_question_is_followed_by_mask_answer_mask_and_scored_on_the_answer(vocabulary):
    example = CONFIG.question_example(Question("8+9", "17"), vocabulary)
    assert vocabulary.decode(example["tokens"]) == "8+9\u204717"
    assert vocabulary.decode(example["targets"]) == "+9\u204717\u2047"
    assert example["loss_mask"].tolist() == [False, False, False, True, True, True]


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
    path.write_text("x\n")
    with pytest.raises(DataError, match=r"asked.tsv, line 1: .*not in the vocabulary"):
        CONFIG.read_file(path, vocabulary)
