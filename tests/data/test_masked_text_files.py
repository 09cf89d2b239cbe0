"""The texts and vocabularies that masked text is made of, and what is refused."""

import grain
import numpy as np
import pytest

from data import DataError
from data.masked_text import MaskedText, TokenizedDocuments
from jaxnlp.text.wordpiece import UNK, WordPieceVocabulary
from jaxnlp.text.words import WordVocabulary
from tests.data.masked_text_helpers import PIECES, TEXT, VOCABULARY, config, first_batches, rows_of, same, texts_of
from tests.encoder_folders import save_tokenizer


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(TEXT)
    return path


def test_a_vocabulary_of_the_training_text_is_the_same_each_time(file):
    settings = config(file, vocabulary_size=120)
    corpus, again = settings.load(0), settings.load(1)
    assert isinstance(corpus.processor, WordPieceVocabulary)
    assert corpus.processor == again.processor
    assert corpus.fingerprint == again.fingerprint
    assert 60 < corpus.processor.size <= 120
    rows = rows_of(first_batches(corpus, 10))
    unknown = corpus.processor.id_of(UNK)
    assert np.mean([unknown in row["original"] for row in rows]) == 0.0
    assert "10 (" in corpus.description
    assert f"{corpus.processor.size} tokens in the vocabulary" in corpus.description


def test_a_vocabulary_of_a_folder_is_taken(file, tmp_path):
    VOCABULARY.save(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    corpus = config(file, vocabulary=str(tmp_path)).load(0)
    assert corpus.processor == VOCABULARY
    same(first_batches(corpus, 2), first_batches(config(file).load(0, VOCABULARY), 2))


def test_the_fingerprint_distinguishes_texts_and_vocabularies_and_nothing_else(file):
    first = config(file).load(0, VOCABULARY).fingerprint
    assert config(file, mask_rate=0.3, sequence_length=20).load(1, VOCABULARY).fingerprint == first
    other = WordPieceVocabulary.of_pieces(PIECES, lowercase=False)
    assert config(file).load(0, other).fingerprint != first
    file.write_text(TEXT.replace("ba", "be", 1))
    assert config(file).load(0, VOCABULARY).fingerprint != first
    file.write_text(TEXT.replace("\nd3 s5", "\n\nd3 s5", 1))
    assert config(file).load(0, VOCABULARY).fingerprint != first


def test_a_file_can_be_scored(file, tmp_path):
    other = tmp_path / "other.txt"
    other.write_text("d1 s0 ba\nd1 s1 ca\n\nd2 s0 da\nd2 s1 fa\n")
    split = config(file).read_file(other, VOCABULARY)
    found = rows_of(split.batches)
    assert sorted(texts_of(row)[0] for row in found) == [["d1", "s0", "ba"], ["d2", "s0", "da"]]
    other.write_text("d1 s0 ba\nd1 s1 ca\n\nd2 s0 da\n")
    with pytest.raises(DataError, match=r"other\.txt: expected at least two documents of two sentences or more, got 1"):
        config(file).read_file(other, VOCABULARY)


def test_the_embedded_text_is_enough():
    corpus = MaskedText(vocabulary_size=1_000).load(0)
    assert corpus.processor.size > 900
    (batch,) = first_batches(corpus, 1)
    assert batch["tokens"].shape == (32, 128)
    assert len(corpus.split("validation").batches) >= 1
    assert isinstance(corpus.split("validation").batches, grain.MapDataset)


def test_starts_number_all_sentences_but_the_last_of_each_document():
    documents = TokenizedDocuments.of([["ba ca", "da"], ["ba"], ["\x07", "fa", "ga"], ["ha", "ja", "ka"]], VOCABULARY)
    # The document of one sentence, and the sentence that has no tokens, are left out.
    assert documents.count == 3
    assert documents.ends.tolist() == [0, 2, 3, 4, 5, 6, 7, 8]
    assert documents.bounds.tolist() == [0, 2, 4, 7]
    assert documents.starts == 4
    assert documents.documents_of(np.arange(4)).tolist() == [0, 1, 2, 2]
    assert documents.tiles(100).tolist() == [0, 1, 2]
    assert documents.tiles(1).tolist() == [0, 1, 2]  # the last document's third sentence has no second part
    assert documents.chunks(np.array([4, 4]), np.array([2, 2]), np.array([3, 1])).tolist() == [7, 6]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"text\.txt is empty"),
        ("\n\n", r"text\.txt has no sentences"),
        ("ba\nca\nda\n", r"expected at least four documents of two sentences or more, .* got 1;"),
        ("ba\n\nca\n\nda\n\nfa\n", r"expected at least four documents .* got 0;"),
        ("ba\nca\n\n" * 3, r"expected at least four documents .* got 3;"),
        (b"ba\nc\xff", r"text\.txt, line 2, offset 4: byte 0xff is not UTF-8"),
        ("ba\n\x07\n\n" * 4, r"fewer than two documents for training, or for validation, whose sentences have any"),
    ],
)
def test_texts_that_do_not_suffice_are_refused(file, text, message):
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(DataError, match=message):
        config(file).load(0, VOCABULARY)


def test_what_does_not_fit_is_refused(file, tmp_path):
    with pytest.raises(DataError, match=r"needs the class EncoderVocabulary, got WordVocabulary"):
        config(file).load(0, WordVocabulary(["a"]))
    folder = tmp_path / "saved"
    folder.mkdir()
    VOCABULARY.save(folder)
    assert config(file, vocabulary=str(folder)).load(0, VOCABULARY).processor == VOCABULARY
    other = WordPieceVocabulary.of_pieces([*PIECES, "more"])
    with pytest.raises(DataError, match=rf"in {folder} differs from the model's of {other.size} tokens; remove --da"):
        config(file, vocabulary=str(folder)).load(0, other)
    with pytest.raises(FileNotFoundError, match=r"has neither tokenizer\.json nor vocab\.txt"):
        config(file, vocabulary=str(tmp_path)).load(0)
    save_tokenizer("roberta", tmp_path / "roberta")
    with pytest.raises(
        DataError, match=r"need BERT's special tokens, \[PAD\], .*, got <pad>, <unk>, <s>, </s>, <mask>"
    ):
        config(file, vocabulary=str(tmp_path / "roberta")).load(0)
    (tmp_path / "vocab.txt").write_text("a\nb\n")
    with pytest.raises(DataError, match=r"data\.vocabulary: .*vocab\.txt is not a WordPiece tokenizer"):
        config(file, vocabulary=str(tmp_path)).load(0)
    with pytest.raises(DataError, match=r"data\.vocabulary_size: a vocabulary of 9 tokens is too small for"):
        config(file, vocabulary_size=9).load(0)
    with pytest.raises(DataError, match=r"--data\.validation-fraction 0\.95 leaves 1 of 12 documents"):
        config(file, validation_fraction=0.95).load(0)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"batch_size": 0}, "data.batch_size must be at least 1, got 0"),
        ({"evaluation_batch_size": 0}, "data.evaluation_batch_size must be at least 1, got 0"),
        ({"sequence_length": 4}, "data.sequence_length must be at least 5, got 4"),
        ({"vocabulary_size": 5}, "data.vocabulary_size must be at least 6, got 5"),
        ({"vocabulary": "v", "vocabulary_size": 9}, "data.vocabulary_size applies only to a vocabulary trained on"),
        ({"mask_rate": 0.0}, r"data.mask_rate must be in \(0, 1\), got 0.0"),
        ({"validation_fraction": 1.0}, r"data.validation_fraction must be in \(0, 1\), got 1.0"),
    ],
)
def test_config_that_cannot_be_is_refused_with_field_and_value(fields, message):
    with pytest.raises(ValueError, match=message):
        MaskedText(**fields)
