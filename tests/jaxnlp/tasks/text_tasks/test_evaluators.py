import numpy as np
import pytest

from configs import bert_multitask
from data import LabelledRows
from train import labelled
from train.config import update


def rows_of(task, labels, order=None):
    labels = np.array(labels, np.float32)
    ids = tuple(f"r{number}" for number in range(len(labels)))
    return LabelledRows(task, ids, labels, np.arange(len(labels)) if order is None else np.array(order), (), 0)


def test_predictions_come_in_the_order_of_the_file_without_the_padding():
    batches = tuple({"tokens": np.array([[[a]], [[b]]]), "attention_mask": None} for a, b in ((3, 1), (0, -1)))
    rows = LabelledRows("quora", ("a", "b", "c"), None, np.array([2, 0, 1]), batches, 0)

    class Model:
        def apply(self, variables, tokens, mask, task):
            return tokens[:, 0, 0] - 2.0

    found = labelled.predictions(Model(), {}, rows)
    np.testing.assert_array_equal(found, [0.0, 0.0, 1.0])  # 3, 1, 0 are of rows 2, 0, 1


def test_scores_are_by_definition_and_a_constant_tells_nothing():
    assert labelled.score(rows_of("sst", [0, 4, 2, 2]), np.array([0, 4, 1, 3])) == {"sst/accuracy": 0.5}
    x, y = np.array([0.1, 2.0, 2.5, 4.0]), [0.0, 1.0, 5.0, 4.0]
    found = labelled.score(rows_of("sts", y), x)
    np.testing.assert_allclose(found["sts/pearson"], np.corrcoef(x, y)[0, 1], rtol=1e-6)
    np.testing.assert_allclose(found["sts/spearman"], np.corrcoef([0, 1, 2, 3], [0, 1, 3, 2])[0, 1], rtol=1e-6)
    assert labelled.score(rows_of("sts", y), np.full(4, 2.5)) == {"sts/pearson": 0.0, "sts/spearman": 0.0}
    scores = {"sst/accuracy": 0.5, "quora/accuracy": 0.8, "sts/pearson": 0.6}
    np.testing.assert_allclose(labelled.mean_score(scores, ["sst", "quora", "sts"]), (0.5 + 0.8 + 0.8) / 3)


@pytest.mark.parametrize(("schedule", "expected"), [("together", 2.0 * 0.5 + 10.0 * 0.25), ("round_robin", 1.75)])
def test_the_loss_over_tasks_is_training_s_whatever_the_number_of_their_rows(schedule, expected):
    config = update(
        bert_multitask.get_config(),
        **{"data.schedule": schedule, "data.tasks": ("sst", "sts"), "model.tasks": ("sst", "sts")},
        **{"model.relation": "none", "model.cosine_logit": None, "loss.task_weights": (2.0, 10.0)},
    )
    scores = {"loss": 9.0, "sst/loss": 0.5, "sts/loss": 0.25, "sst/accuracy": 0.3}
    assert labelled.loss_over_tasks(scores, config) == {"loss": expected}
    alone = labelled.loss_over_tasks({"sts/loss": 0.25}, config)  # a file of the one
    assert alone == {"loss": 2.5}


def test_files_have_the_projects_names_headers_and_numbers():
    assert labelled.file_name("quora", "validation") == "para-dev-output.csv"
    assert labelled.file_name("cfimdb", "test") == "cfimdb-test-output.csv"
    assert labelled.file_text(rows_of("quora", [0, 1]), np.array([1.0, 0.0])) == (
        "id \t Predicted_Is_Paraphrase \nr0 , 1.0 \nr1 , 0.0 \n"
    )
    assert labelled.file_text(rows_of("sts", [0]), np.array([2.25])) == "id \t Predicted_Similiary \nr0 , 2.250000 \n"
