"""Language modelling on a classifier's texts: the same rows, the same vocabulary, and each token predicted once."""

import itertools

import numpy as np
import pytest

from data import DataError
from data.text_table import TextTable
from data.texts_of_table import TextsOfTable
from jaxnlp.text.encoder_texts import EncoderTexts
from jaxnlp.text.wordpiece import SPECIAL, WordPieceVocabulary
from jaxnlp.text.words import WordVocabulary

WORDS = ["the", "cat", "sat", "on", "mat"]
VOCABULARY = EncoderTexts(WordPieceVocabulary.of_pieces([*SPECIAL, *WORDS]))


def written(path, rows, header="text,label"):
    path.write_text("".join(f"{row}\n" for row in (header, *rows)))
    return str(path)


@pytest.fixture
def table(tmp_path):
    draw = np.random.default_rng(0)
    texts = [" ".join(draw.choice(WORDS, 3 + number % 7)) for number in range(60)]
    return written(tmp_path / "news.csv", [f"{text},{('arts', 'sport')[n % 2]}" for n, text in enumerate(texts)])


def config(path, kind=TextsOfTable, **fields):
    return kind(**{"path": path, "batch_size": 4, "evaluation_batch_size": 4, "tokens": "words"} | fields)


def texts_of(batches):
    """The texts of batches; each target must be the next token."""
    found = []
    for batch in batches:
        for tokens, targets, mask in zip(batch["tokens"], batch["targets"], batch["loss_mask"], strict=True):
            np.testing.assert_array_equal(tokens[mask][1:], targets[mask][:-1])
            assert not tokens[~mask].any()
            if mask.any():
                found.append((int(tokens[0]), VOCABULARY.decode(targets[mask]), int(targets[mask][-1])))
    return found


def rows_of(texts):
    cls, sep = (VOCABULARY.vocabulary.id_of(token) for token in ("[CLS]", "[SEP]"))
    return [(cls, f" {text}", sep) for text in texts]


def test_rows_are_the_texts_of_the_classifiers_training_and_validation(table):
    corpus, labelled = config(table).load(0, VOCABULARY), config(table, TextTable).load(0, VOCABULARY)
    held_out = [text for example in labelled.split("validation").examples for text in example.texts]
    assert sorted(texts_of(corpus.split("validation").batches)) == sorted(rows_of(held_out))
    trained = texts_of(itertools.islice(iter(config(table, batch_size=1).load(0, VOCABULARY).train), 8 * 54))
    with open(table) as file:
        every = [line.partition(",")[0] for line in file][1:]
    assert sorted([*sorted(trained)[::8], *rows_of(held_out)]) == sorted(rows_of(every))
    assert corpus.token_counts.sum() == sum(len(text.split()) + 1 for text in every) - sum(
        len(text.split()) + 1 for text in held_out
    )
    assert "texts: 54 of the table and 0 others for training, 6 for validation" in corpus.description


def test_the_vocabulary_is_the_classifiers_and_a_classifier_takes_it(table):
    corpus, labelled = config(table).load(0), config(table, TextTable).load(0)
    assert corpus.processor == EncoderTexts(labelled.processor.vocabulary)
    assert config(table, TextTable).load(0, corpus.processor).processor == labelled.processor
    assert config(table).load(0, corpus.processor).processor == corpus.processor
    with pytest.raises(DataError, match="needs the class EncoderVocabulary, got WordVocabulary"):
        config(table).load(0, WordVocabulary(["the"]))


def test_further_texts_are_for_training_and_their_words_are_in_the_vocabulary(table, tmp_path, caplog):
    lines, columns = tmp_path / "more.txt", tmp_path / "more.csv"
    lines.write_text("a bird, sang\n\nthe cat\n")
    written(columns, ['"a bird, sang"', "the cat"], "text")
    plain = config(table).load(0)
    for path in (lines, columns):
        corpus = config(table, unlabelled=path, minimum_count=1, batch_size=1).load(0)
        assert {"bird", "sang"} <= {*corpus.processor.vocabulary.tokens(range(corpus.processor.size))}
        assert "54 of the table and 2 others" in corpus.description
        assert len(corpus.split("validation").batches) == len(plain.split("validation").batches)
        assert corpus.fingerprint != plain.fingerprint
    assert "more.txt: texts that are blank, which are skipped: 1 of 3, the first in line 2" in caplog.text
    with pytest.raises(FileNotFoundError):
        config(table, unlabelled=tmp_path / "none.txt").load(0)
    lines.write_bytes(b"\xff\xfe\xfa\n")
    with pytest.raises(DataError, match=r"more\.txt"):
        config(table, unlabelled=lines).load(0)


def test_a_long_text_is_several_rows_and_each_token_is_predicted_once(tmp_path):
    words = " ".join(np.random.default_rng(1).choice(WORDS, 23))
    path = written(tmp_path / "t.csv", [f"{words},a", "the,b"] * 4)
    split = config(path, max_length=10, validation_fraction=0.25).load(0, VOCABULARY).split("validation")
    assert max(batch["tokens"].shape[1] for batch in split.batches) == 10
    pieces = [text for _, text, _ in texts_of(split.batches)]
    assert sum(len(text.split()) for text in pieces) == 23 + 1
    assert sum(int(batch["loss_mask"].sum()) for batch in split.batches) == 24 + 2


def test_both_texts_of_a_pair_are_rows(tmp_path):
    path = written(tmp_path / "p.csv", ["the cat,mat,x", "sat,sat on,y"] * 6, "text,other,label")
    split = config(path, pair="other", validation_fraction=0.5).load(0, VOCABULARY).split("validation")
    assert {text for _, text, _ in texts_of(split.batches)} == {" the cat", " mat", " sat", " sat on"}


def test_a_file_is_scored_as_texts(table, tmp_path):
    path = tmp_path / "texts.txt"
    path.write_text("the cat sat\non the mat\n")
    batches = config(table).read_file(path, VOCABULARY).batches
    assert sorted(texts_of(batches)) == sorted(rows_of(["the cat sat", "on the mat"]))
    with pytest.raises(DataError, match="needs the class EncoderTexts"):
        config(table).read_file(path, VOCABULARY.vocabulary)


def test_the_order_is_the_seeds_and_every_shape_is_known(table):
    first, same, other = (
        [batch["tokens"].copy() for batch in itertools.islice(iter(config(table).load(seed, VOCABULARY).train), 30)]
        for seed in (0, 0, 1)
    )
    assert all(np.array_equal(a, b) for a, b in zip(first, same, strict=True))
    assert any(not np.array_equal(a, b) for a, b in zip(first, other, strict=True))
    shapes = {batch["tokens"].shape for batch in config(table).load(0, VOCABULARY).of_each_shape}
    assert {tokens.shape for tokens in first} <= shapes


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"oversample": True}, "data.oversample applies only to classifiers; set it to False, got True"),
        ({"pair": "other", "swap_pairs": True}, "data.swap_pairs applies only to classifiers"),
        ({"pair": "other", "pairs": "apart"}, "data.pairs applies only to classifiers"),
        ({"path": None, "parts": ("sst", "sts")}, "data.parts applies only to classifiers"),
        ({"unlabelled": ""}, "data.unlabelled must be a path, got an empty text"),
    ],
)
def test_options_of_classifiers_are_refused(fields, message, table):
    with pytest.raises(ValueError, match=message.replace(".", r"\.")):
        config(**({"path": table} | fields))
