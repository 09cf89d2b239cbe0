from data.readers.table_summary import summary
from jaxnlp.targets import Number, OneClass
from jaxnlp.text.classifier_processor import LabelledText, TextClassifierProcessor, one_part
from jaxnlp.text.wordpiece import SPECIAL, WordPieceVocabulary

VOCABULARY = WordPieceVocabulary.of_pieces([*SPECIAL, "cat"])


def rows(*pairs):
    return [LabelledText(str(number), texts, label) for number, (texts, label) in enumerate(pairs)]


def test_rows_classes_lengths_and_repeated_pairs_are_counted():
    processor = TextClassifierProcessor(VOCABULARY, 8, one_part(OneClass(("no", "perhaps", "yes")), 2))
    train = rows((("a", "b"), 0), (("c", "d"), 2), (("e", "f"), 2))
    splits = {"validation": rows((("b", "a"), 0), (("x", "y"), 2)), "test": rows((("z", "z"), None))}
    assert summary(processor, train, splits, [4, 6, 8], 1).splitlines() == [
        "pairs: 3 for training, 2 for validation, 1 for test",
        "3 classes in training: yes 2, no 1, perhaps 0",
        "tokens: median 6, 95% have at most 8, maximum 8; pairs for training truncated to 8: 1",
        "pairs of validation that are also in training: 1",  # in the other order
        "validation has no row of 1 of the classes, such as perhaps",
        "6 tokens in the vocabulary",
    ]


def test_numbers_have_their_ends_and_their_mean():
    processor = TextClassifierProcessor(VOCABULARY, 8, one_part(Number(1.0, 5.0)))
    lines = summary(processor, rows((("a",), 1.0), (("b",), 5.0)), {}, [3, 3], 0).splitlines()
    assert lines[1] == "numbers in training from 1 to 5, mean 3"
    assert not any("beyond" in line for line in lines)


def test_numbers_that_no_prediction_reaches_are_counted():
    processor = TextClassifierProcessor(VOCABULARY, 8, one_part(Number(1.0, 5.0)))
    splits = {"validation": rows((("c",), 5.0), (("d",), 7.5), (("e",), 0.0)), "test": rows((("f",), None))}
    lines = summary(processor, rows((("a",), 1.0), (("b",), 5.0)), splits, [3, 3], 0).splitlines()
    note = "numbers of validation beyond those of training, which no prediction reaches: 2 of 3, such as 7.5"
    assert [line for line in lines if "beyond" in line] == [note]


def test_tokens_of_the_vocabulary_and_unknown_ones_are_reported():
    processor = TextClassifierProcessor(VOCABULARY, 8, one_part(Number(1.0, 5.0)))
    train = rows((("a",), 1.0), (("b",), 5.0))
    last = summary(processor, train, {}, [3, 3], 0, unknown={"validation": 0.25}).splitlines()[-1]
    assert last == "6 tokens in the vocabulary; 25.0% of the tokens of validation are unknown"
