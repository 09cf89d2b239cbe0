import jax
import numpy as np
import pytest

from data.pipelines.text_batches import labelled_split, split_of_parts
from jaxnlp.corpus import SourceRows, Split
from jaxnlp.tasks import Metric
from jaxnlp.tasks.text_tasks import TextTasks
from jaxnlp.tasks.text_tasks.evaluators import Validation, correlations, error_blocks, file_name, file_text
from jaxnlp.tasks.text_tasks.predictions import most_likely, predict_texts
from jaxnlp.text.labels import Labels, TextExample
from train.evaluation.scoring import SplitScoring
from train.parallel import make_parallel

STARS = Labels("classification", 1, ("0", "1", "2", "3", "4"))
SAME = Labels("paraphrase", 2, ("0", "1"))
TOPICS = Labels("classification", 1, ("sea", "land"))
SIMILAR = Labels("similarity", 2, highest=5.0)
TEXTS = ["the cat sat on the mat", "fish", "a big dog ate a fish .", "the dog", "cats"]
PAIRS = ["the cats sat", "fish", "a dog", "the mat", "a big fish"]


def examples(part, labels):
    pairs = PAIRS if part in ("quora", "sts") else [None] * len(TEXTS)
    return [TextExample(f"{part}{n}", *row) for n, row in enumerate(zip(TEXTS, pairs, labels, strict=True))]


def scoring_of(trained, labelled, name="validation"):
    """What the evaluator is given, with batches of two rows."""
    arguments = {"batch_size": 2, "multiple": 8, "max_length": trained.processor.max_length}
    split = split_of_parts(
        {part: labelled_split(rows, part, trained.processor.vocabulary, **arguments) for part, rows in labelled.items()}
    )
    objective = trained.task.objective(trained.model, None)
    layout = make_parallel("jit", jax.devices()[:1])
    return SplitScoring(trained, split, name, training=None, objective=objective, layout=layout, kept={})


LABELLED = {
    "sst": examples("sst", [0.0, 4.0, 2.0, 2.0, 1.0]),
    "quora": examples("quora", [1.0, 0.0, 1.0, 0.0, 0.0]),
    "sts": examples("sts", [4.0, 5.0, 1.5, 2.0, 0.0]),
}


@pytest.fixture(scope="module")
def found(make_trained):
    """A model of three parts, and its evaluation."""
    trained = make_trained("sst", "quora", "sts", task=TextTasks(part_weights=(1.0, 2.0, 4.0)))
    return trained, Validation()(scoring_of(trained, LABELLED))


def chosen(trained, part):
    pairs = PAIRS if trained.processor.labels(part).texts == 2 else None
    return most_likely(predict_texts(trained, TEXTS, pairs, part=part).values, trained.processor.labels(part))


def test_metrics_are_those_of_the_predictions(found):
    trained, evaluation = found
    metrics = {name: metric.value for name, metric in evaluation.metrics.items()}
    for part in ("sst", "quora"):
        right = [p == row.label for p, row in zip(chosen(trained, part), LABELLED[part], strict=True)]
        np.testing.assert_allclose(metrics[f"{part}/accuracy"], np.mean(right), rtol=1e-6)
    expected = np.corrcoef(chosen(trained, "sts"), [row.label for row in LABELLED["sts"]])[0, 1]
    np.testing.assert_allclose(metrics["sts/pearson"], expected, rtol=1e-4)
    losses = [metrics["sst/loss"], 2.0 * metrics["quora/loss"], 4.0 * metrics["sts/loss"]]
    np.testing.assert_allclose(metrics["loss"], np.mean(losses), rtol=1e-6)
    scores = [metrics["sst/accuracy"], metrics["quora/accuracy"], (1 + metrics["sts/pearson"]) / 2]
    np.testing.assert_allclose(metrics["mean_score"], np.mean(scores), rtol=1e-6)
    assert {name: metric.count for name, metric in evaluation.metrics.items() if "/" in name} == {
        name: 5 for name in metrics if "/" in name
    }
    assert evaluation.metrics["loss"].count == evaluation.metrics["mean_score"].count == 15


def test_every_metric_of_validation_is_declared(found):
    trained, evaluation = found
    declared = trained.task.metrics(trained.processor, scoring_of(trained, LABELLED).split)
    assert evaluation.metrics.keys() <= declared.keys()
    assert "objective" not in evaluation.metrics


def test_files_of_predictions_are_in_the_order_of_the_examples(found):
    trained, evaluation = found
    assert evaluation.predictions.keys() == {"sst-dev-output.csv", "para-dev-output.csv", "sts-dev-output.csv"}
    header, *lines = evaluation.predictions["sst-dev-output.csv"].splitlines()
    assert header == "id \t Predicted_Sentiment "
    assert lines == [f"sst{n} , {int(p)} " for n, p in enumerate(chosen(trained, "sst"))]


def test_a_part_without_labels_has_predictions_only(found):
    trained, _ = found
    unlabelled = {"sts": examples("sts", [None] * 5)}
    evaluation = Validation()(scoring_of(trained, unlabelled, "test"))
    assert evaluation.metrics == {}
    assert evaluation.blocks == []
    assert evaluation.predictions.keys() == {"sts-test-output.csv"}


def test_correlations_are_by_definition_and_0_for_a_constant():
    x, y = np.array([0.1, 2.0, 2.5, 4.0]), np.array([0.0, 1.0, 5.0, 4.0])
    metrics = correlations("sts", x, y)
    np.testing.assert_allclose(metrics["sts/pearson"].value, np.corrcoef(x, y)[0, 1], rtol=1e-6)
    expected = np.corrcoef([0, 1, 2, 3], [0, 1, 3, 2])[0, 1]
    np.testing.assert_allclose(metrics["sts/spearman"].value, expected, rtol=1e-6)
    constant = correlations("sts", np.full(4, 2.5), y)
    assert constant == {"sts/pearson": Metric(0.0, 4), "sts/spearman": Metric(0.0, 4)}


@pytest.mark.parametrize(
    ("part", "split", "expected"),
    [
        ("quora", "validation", "para-dev-output.csv"),
        ("cfimdb", "test", "cfimdb-test-output.csv"),
        ("topics", "dev", "topics-dev-output.csv"),
        ("sts", "folder/mine.csv", "sts-mine-output.csv"),
    ],
)
def test_files_have_the_projects_names_and_other_parts_their_own(part, split, expected):
    assert file_name(part, split) == expected


def test_files_have_the_projects_headers_and_numbers_and_other_parts_the_names_of_classes():
    rows = [TextExample("r0", "a", None, None), TextExample("r1", "b", None, None)]
    both = Split(examples=rows)
    assert file_text("quora", SAME, both, np.array([1.0, 0.0])) == (
        "id \t Predicted_Is_Paraphrase \nr0 , 1.0 \nr1 , 0.0 \n"
    )
    assert (
        file_text("sts", SIMILAR, Split(examples=rows[:1]), np.array([2.25]))
        == "id \t Predicted_Similiary \nr0 , 2.250000 \n"
    )
    assert file_text("topics", TOPICS, both, np.array([1.0, 0.0])) == (
        "id \t Predicted_Label \nr0 , land \nr1 , sea \n"
    )


def test_rows_without_a_text_have_an_empty_prediction_and_own_tables_keep_their_columns():
    rows = [TextExample("r1", "a", None, None), TextExample("r2", "b", None, None)]
    cells = [("", "x"), ("a", "y"), ("b", "z")]
    split = Split(examples=rows, source=SourceRows([1, 2], ["r0", "r1", "r2"], ("text", "predicted"), cells))
    assert file_text("sts", SIMILAR, split, np.array([2.25, 1.0])) == (
        "id \t Predicted_Similiary \nr0 ,  \nr1 , 2.250000 \nr2 , 1.000000 \n"
    )
    assert file_text("topics", TOPICS, split, np.array([1.0, 0.0])) == (
        "text,predicted,predicted 2\n,x,\na,y,land\nb,z,sea\n"
    )


def test_the_report_counts_confusions_and_lists_the_most_confident_errors_first():
    rows = [TextExample(str(n), text, None, None) for n, text in enumerate(["a", "b", "c", "d"])]
    predicted = np.array([[0.9, 0.1], [0.8, 0.2], [0.1, 0.9], [0.45, 0.55]])
    confusions, errors = error_blocks("topics", TOPICS, rows, predicted, np.array([0.0, 1.0, 1.0, 0.0]))
    assert confusions.content.header == ("expected", "sea", "land")
    assert confusions.content.rows == (("sea", 1, 1), ("land", 1, 1))
    assert errors.content.rows == (("b", "sea (0.80)", "land"), ("d", "land (0.55)", "sea"))


def test_the_report_lists_the_largest_differences_of_similarities():
    rows = [TextExample(str(n), text, "y", None) for n, text in enumerate(["a", "b", "c"])]
    (block,) = error_blocks("sts", SIMILAR, rows, np.array([1.0, 4.0, 2.0]), np.array([1.0, 0.5, 3.0]))
    assert block.content.rows == (("b | y", "4.00", "0.50"), ("c | y", "2.00", "3.00"))


def test_classes_beyond_the_limit_have_no_table_of_confusions():
    many = Labels("classification", 1, tuple(f"c{n}" for n in range(31)))
    rows, predicted = [TextExample("0", "a", None, None)], np.eye(31)[:1]
    blocks = error_blocks("many", many, rows, predicted, np.array([1.0]))
    assert [block.name for block in blocks] == ["many: most confident errors"]
    assert len(error_blocks("sst", STARS, rows, np.eye(5)[:1], np.array([1.0]))) == 2
