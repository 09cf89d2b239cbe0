import functools
import itertools
import math
from collections import Counter

import grain
import numpy as np
import pytest

from data import DataError
from data.masked_text import MaskedText, TokenizedDocuments
from jaxnlp.text.wordpiece import CLS, MASK, PAD, SEP, SPECIAL, UNK, WordPieceVocabulary
from jaxnlp.text.words import WordVocabulary

DOCUMENTS, SENTENCES = 12, 9
STEMS = [a + b for a, b in itertools.product("bcdfghjklm", "aeiou")]
ENDINGS = ["##x", "##y", "##z"]


@functools.cache
def words_of(document, sentence):
    """5 to 12 words of one to three pieces; the first says which document this is, the second which sentence."""
    generator = np.random.default_rng((document, sentence))
    words = [f"d{document}", f"s{sentence}"]
    for _ in range(generator.integers(3, 11)):
        endings = generator.choice(ENDINGS, generator.integers(0, 3))
        words.append(str(generator.choice(STEMS)) + "".join(ending.removeprefix("##") for ending in endings))
    return words


TEXT = "\n".join(
    "".join(" ".join(words_of(document, sentence)) + "\n" for sentence in range(SENTENCES))
    for document in range(DOCUMENTS)
)
PIECES = [
    *SPECIAL,
    *STEMS,
    *ENDINGS,
    *(f"d{number}" for number in range(DOCUMENTS)),
    *(f"s{number}" for number in range(SENTENCES)),
]
VOCABULARY = WordPieceVocabulary.of_pieces(PIECES)
IDS = {piece: VOCABULARY.id_of(piece) for piece in PIECES}


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(TEXT)
    return path


def config(file, **fields):
    plain = {"batch_size": 4, "evaluation_batch_size": 8, "sequence_length": 48}
    return MaskedText(source="text_file", path=str(file), **plain | fields)


def first_batches(corpus, count):
    return list(itertools.islice(iter(corpus.train), count))


def rows_of(batches):
    """Each row that counts, by its fields, with its original tokens put back as `original`."""
    rows = []
    for batch in batches:
        for number in np.flatnonzero(batch["loss_mask"]):
            row = {name: value[number] for name, value in batch.items()}
            original, chosen = row["tokens"].copy(), row["positions"][row["predicted"]]
            original[chosen] = row["targets"][row["predicted"]]
            rows.append(row | {"original": original, "chosen": chosen})
    return rows


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """Two thousand examples."""
    path = tmp_path_factory.mktemp("masked") / "text.txt"
    path.write_text(TEXT)
    return rows_of(first_batches(config(path, batch_size=100).load_with(0, VOCABULARY), 20))


def texts_of(row):
    """A and B as pieces."""
    ends = np.flatnonzero(row["original"] == IDS[SEP])
    pieces = VOCABULARY.pieces(row["original"])
    return pieces[1 : ends[0]], pieces[ends[0] + 1 : ends[1]]


def marks_of(pieces, letter):
    """Numbers in the marks d0, d1, ... or s0, s1, ... of a text."""
    return [int(piece[1:]) for piece in pieces if piece[0] == letter and piece[1:].isdigit()]


@functools.cache
def pieces_of(*sentences):
    """Of sentences, each by its document and number, one after the other."""
    return VOCABULARY.pieces(VOCABULARY.encode(" ".join(" ".join(words_of(*sentence)) for sentence in sentences)))


def within_five_sigma(successes, trials, share):
    return abs(successes - trials * share) < 5.0 * math.sqrt(trials * share * (1.0 - share))


def test_batches_have_the_stated_fields_types_and_shapes(file):
    settings = config(file)
    batch = first_batches(settings.load_with(0, VOCABULARY), 1)[0]
    predictions = settings.predictions
    assert predictions == 8  # 0.15 x 48 = 7.2, rounded up
    assert {name: (value.shape, value.dtype.name) for name, value in batch.items()} == {
        "tokens": ((4, 48), "int32"),
        "segments": ((4, 48), "int32"),
        "attention_mask": ((4, 48), "bool"),
        "positions": ((4, predictions), "int32"),
        "targets": ((4, predictions), "int32"),
        "predicted": ((4, predictions), "bool"),
        "follows": ((4,), "int32"),
        "loss_mask": ((4,), "bool"),
    }
    assert batch["loss_mask"].all()


def test_an_example_is_two_texts_between_special_tokens_with_segments_and_padding(rows):
    for row in rows:
        length = row["attention_mask"].sum()
        assert row["attention_mask"][:length].all()
        original = row["original"]
        assert original[0] == IDS[CLS]
        (first, last) = np.flatnonzero(original == IDS[SEP])
        assert 1 < first < last - 1
        assert last == length - 1
        assert not (original[:length] == IDS[PAD]).any()
        assert not (original == IDS[MASK]).any()
        assert not original[length:].any()
        places = np.arange(len(original))
        np.testing.assert_array_equal(row["segments"], (places > first) & (places <= last))


def test_half_of_the_second_texts_follow_and_the_others_are_of_another_document(rows):
    follows = np.array([row["follows"] for row in rows])
    assert set(follows) == {0, 1}
    assert within_five_sigma(follows.sum(), len(rows), 0.5)
    for row in rows:
        first, second = texts_of(row)
        document, sentence = int(second[0][1:]), int(second[1][1:])  # B begins with a whole sentence
        assert sentence > 0
        if row["follows"]:
            before = pieces_of(*((document, number) for number in range(sentence)))
            assert first == before[-len(first) :]
        else:
            assert document not in marks_of(first, "d")
        after = pieces_of(*((document, number) for number in range(sentence, SENTENCES)))
        assert second == after[: len(second)]


def test_every_sentence_that_another_one_follows_begins_an_example_once_an_epoch(file):
    settings = config(file, batch_size=1, sequence_length=512)
    corpus = settings.load_with(0, VOCABULARY)
    train = settings.load_with(1, VOCABULARY)
    held_out = {mark for row in rows_of(corpus.split("validation").batches) for mark in marks_of(texts_of(row)[0], "d")}
    expected = [(d, s) for d in range(DOCUMENTS) if d not in held_out for s in range(SENTENCES - 1)]

    def epochs(corpus):
        found = []
        for row in rows_of(first_batches(corpus, 2 * len(expected))):
            first, _ = texts_of(row)
            found.append((marks_of(first, "d")[0], marks_of(first, "s")[0]))
        return found[: len(expected)], found[len(expected) :]

    first, second = epochs(corpus)
    assert sorted(first) == sorted(second) == expected
    assert first != second
    assert epochs(train)[0] != first


def test_texts_are_cut_where_they_lie_farthest_apart(file):
    short = rows_of(first_batches(config(file, sequence_length=11, batch_size=64).load_with(0, VOCABULARY), 4))
    assert all(row["attention_mask"].all() for row in short)  # all sentences have five pieces or more
    for row in short:
        first, second = texts_of(row)
        assert len(first) == len(second) == 4
        document, sentence = int(second[0][1:]), int(second[1][1:])
        assert second == pieces_of((document, sentence))[:4]
        if row["follows"]:
            assert first == pieces_of((document, sentence - 1))[-4:]


@pytest.mark.parametrize("whole_words", [False, True])
@pytest.mark.parametrize("mask_rate", [0.15, 0.4])
def test_the_stated_share_of_pieces_is_predicted_and_no_special_one(file, mask_rate, whole_words):
    settings = config(file, batch_size=100, mask_rate=mask_rate, whole_words=whole_words)
    found = rows_of(first_batches(settings.load_with(0, VOCABULARY), 10))
    predicted = np.array([len(row["chosen"]) for row in found])
    words = np.array([row["attention_mask"].sum() - 3 for row in found])
    for row, count in zip(found, words, strict=True):
        assert len(row["chosen"]) <= math.ceil(mask_rate * count)
        assert (np.diff(row["chosen"]) > 0).all()
        targets = row["targets"][row["predicted"]]
        assert not np.isin(targets, [IDS[piece] for piece in SPECIAL]).any()
        assert row["predicted"][: len(row["chosen"])].all()
        assert not row["predicted"][len(row["chosen"]) :].any()
        assert not row["positions"][len(row["chosen"]) :].any()
    # A row's number is rounded up or down by chance: a variance of 1/4 at most.
    spread = 5.0 * math.sqrt(len(found) / 4.0)
    assert predicted.sum() < mask_rate * words.sum() + spread
    # A word of more pieces than are left to predict is passed over, which may leave one or two at the end of a row.
    missing = 0.2 * len(found) if whole_words else 0.0
    assert predicted.sum() > mask_rate * words.sum() - spread - missing


def test_any_place_is_as_likely_as_another(rows):
    counts, possible = np.zeros(48), np.zeros(48)
    for row in rows:
        counts[row["chosen"]] += 1
        possible += ~np.isin(row["original"], [IDS[piece] for piece in (CLS, SEP, PAD)])
    assert counts[0] == possible[0] == 0
    assert (possible[1:46] > 1_000).all()
    assert all(within_five_sigma(*pair, 0.15) for pair in zip(counts[1:46], possible[1:46], strict=True))


def test_predicted_pieces_are_masked_replaced_and_kept_at_the_stated_rates(rows):
    read = np.concatenate([row["tokens"][row["chosen"]] for row in rows])
    targets = np.concatenate([row["targets"][row["predicted"]] for row in rows])
    masked, kept = (read == IDS[MASK]).sum(), (read == targets).sum()
    ordinary = len(PIECES) - len(SPECIAL)
    # A random piece is now and then the piece itself.
    assert within_five_sigma(masked, len(read), 0.8)
    assert within_five_sigma(kept, len(read), 0.1 + 0.1 / ordinary)
    assert within_five_sigma(len(read) - masked - kept, len(read), 0.1 - 0.1 / ordinary)
    random = Counter(read[(read != IDS[MASK]) & (read != targets)].tolist())
    assert not random.keys() & {IDS[piece] for piece in SPECIAL}
    assert len(random) == ordinary
    expected = sum(random.values()) / ordinary
    assert all(abs(count - expected) < 6.0 * math.sqrt(expected) for count in random.values())


def test_pieces_that_are_not_predicted_are_those_of_the_text(rows):
    assert all(marks_of(VOCABULARY.pieces(row["original"]), "d") for row in rows)
    sentences = {
        tuple(VOCABULARY.encode(" ".join(words_of(d, s))).tolist()) for d in range(DOCUMENTS) for s in range(SENTENCES)
    }
    whole = 0
    for row in rows[:200]:
        first, second = texts_of(row)
        if row["attention_mask"].all():
            continue  # perhaps cut
        ids = [IDS[piece] for piece in first + second]
        starts = [i for i, piece in enumerate(first + second) if piece.startswith("d") and piece[1:].isdigit()]
        parts = [tuple(ids[a:b]) for a, b in itertools.pairwise([*starts, len(ids)])]
        assert set(parts) <= sentences
        whole += 1
    assert whole > 10


def words_in(row):
    """The number of each piece's word."""
    return np.cumsum([not piece.startswith("##") for piece in VOCABULARY.pieces(row["original"])])


def test_whole_words_are_predicted_whole(file):
    settings = config(file, batch_size=100, whole_words=True)
    several = parted = 0
    for row in rows_of(first_batches(settings.load_with(0, VOCABULARY), 5)):
        word = words_in(row)
        chosen = set(row["chosen"].tolist())
        for number in set(word[row["chosen"]].tolist()):
            # Where A is cut it may begin within a word.
            pieces = [int(i) for i in np.flatnonzero(word == number) if i != 0]
            assert set(pieces) <= chosen
            several += len(pieces) > 1
    assert several > 250
    for row in rows_of(first_batches(config(file, batch_size=100).load_with(0, VOCABULARY), 5)):
        word = words_in(row)
        parted += any(len(np.flatnonzero(word == n)) > np.sum(word[row["chosen"]] == n) for n in word[row["chosen"]])
    assert parted > 100


def same(found, expected):
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert one.keys() == other.keys()
        for name in other:
            np.testing.assert_array_equal(one[name], other[name])


def test_a_seed_gives_the_same_batches_and_another_seed_others(file):
    first = first_batches(config(file).load_with(3, VOCABULARY), 5)
    same(first_batches(config(file).load_with(3, VOCABULARY), 5), first)
    other = first_batches(config(file).load_with(4, VOCABULARY), 5)
    assert any((a["tokens"] != b["tokens"]).any() for a, b in zip(first, other, strict=True))


def test_an_epoch_draws_lengths_partners_and_masks_anew(file):
    corpus = config(file, batch_size=1, sequence_length=512).load_with(0, VOCABULARY)
    starts = (DOCUMENTS - 2) * (SENTENCES - 1)
    by_start = [{}, {}]
    for number, row in enumerate(rows_of(first_batches(corpus, 2 * starts))):
        first, _ = texts_of(row)
        by_start[number // starts][marks_of(first, "d")[0], marks_of(first, "s")[0]] = row
    assert by_start[0].keys() == by_start[1].keys()
    pairs = [(row, by_start[1][start]) for start, row in by_start[0].items()]
    assert sum(row["follows"] != other["follows"] for row, other in pairs) > 20  # of 80, expected: 40
    assert sum(len(texts_of(row)[0]) != len(texts_of(other)[0]) for row, other in pairs) > 20
    assert all(row["chosen"].tolist() != other["chosen"].tolist() for row, other in pairs if len(row["chosen"]) > 4)


@pytest.mark.parametrize("whole_words", [False, True])
def test_saved_and_set_state_gives_the_same_continuation(file, whole_words):
    settings = config(file, whole_words=whole_words)
    batches = iter(settings.load_with(0, VOCABULARY).train)
    for _ in range(25):  # into the second epoch
        next(batches)
    state, expected = batches.get_state(), [next(batches) for _ in range(4)]
    again = iter(settings.load_with(0, VOCABULARY).train)
    again.set_state(state)
    same([next(again) for _ in range(4)], expected)


def test_held_out_documents_and_their_masks_are_fixed_and_never_trained_on(file):
    settings = config(file)
    corpus = settings.load_with(0, VOCABULARY)
    batches = corpus.split("validation").batches
    same(list(batches), list(batches))
    same(list(settings.load_with(1, VOCABULARY).split("validation").batches), list(batches))
    held_out = rows_of(batches)
    documents = {mark for row in held_out for text in texts_of(row) for mark in marks_of(text, "d")}
    assert len(documents) == 2  # a tenth of twelve, and two at least
    trained = {
        mark for row in rows_of(first_batches(corpus, 60)) for text in texts_of(row) for mark in marks_of(text, "d")
    }
    assert trained == set(range(DOCUMENTS)) - documents
    # Each sentence stands in one chunk, and where the second text follows, both texts are that chunk.
    begun = [(marks_of(a, "d"), marks_of(a, "s")) for a, _ in map(texts_of, held_out)]
    numbers = [(d[-1], s) for d, s in begun if d for s in s]
    assert len(set(numbers)) == len(numbers)
    last = list(batches)[-1]
    assert not last["loss_mask"].all()
    assert not last["tokens"][~last["loss_mask"]].any()
    assert len(held_out) > 4


def test_a_vocabulary_of_the_training_text_is_the_same_each_time(file):
    settings = config(file, vocabulary_size=120)
    corpus, again = settings.load(0), settings.load(1)
    assert isinstance(corpus.vocabulary, WordPieceVocabulary)
    assert corpus.vocabulary == again.vocabulary
    assert corpus.fingerprint == again.fingerprint
    assert 60 < corpus.vocabulary.size <= 120
    rows = rows_of(first_batches(corpus, 10))
    unknown = corpus.vocabulary.id_of(UNK)
    assert np.mean([unknown in row["original"] for row in rows]) == 0.0
    assert "10 (" in corpus.description
    assert f"{corpus.vocabulary.size} pieces of words" in corpus.description


def test_a_vocabulary_of_a_folder_is_taken(file, tmp_path):
    VOCABULARY.save(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    corpus = config(file, vocabulary=str(tmp_path)).load(0)
    assert corpus.vocabulary == VOCABULARY
    same(first_batches(corpus, 2), first_batches(config(file).load_with(0, VOCABULARY), 2))


def test_the_fingerprint_tells_texts_and_vocabularies_apart_and_nothing_else(file):
    first = config(file).load_with(0, VOCABULARY).fingerprint
    assert config(file, mask_rate=0.3, sequence_length=20).load_with(1, VOCABULARY).fingerprint == first
    other = WordPieceVocabulary.of_pieces(PIECES, lowercase=False)
    assert config(file).load_with(0, other).fingerprint != first
    file.write_text(TEXT.replace("ba", "be", 1))
    assert config(file).load_with(0, VOCABULARY).fingerprint != first
    file.write_text(TEXT.replace("\nd3 s5", "\n\nd3 s5", 1))
    assert config(file).load_with(0, VOCABULARY).fingerprint != first


def test_a_file_can_be_scored(file, tmp_path):
    other = tmp_path / "other.txt"
    other.write_text("d1 s0 ba\nd1 s1 ca\n\nd2 s0 da\nd2 s1 fa\n")
    split = config(file).read_file(other, VOCABULARY)
    found = rows_of(split.batches)
    assert sorted(texts_of(row)[0] for row in found) == [["d1", "s0", "ba"], ["d2", "s0", "da"]]
    other.write_text("d1 s0 ba\nd1 s1 ca\n\nd2 s0 da\n")
    with pytest.raises(DataError, match=r"other\.txt has 1 documents of two sentences or more; two are needed"):
        config(file).read_file(other, VOCABULARY)


def test_the_embedded_text_is_enough():
    corpus = MaskedText(vocabulary_size=1_000).load(0)
    assert corpus.vocabulary.size > 900
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
    assert [documents.document_of(start) for start in range(4)] == [0, 1, 2, 2]
    assert documents.tiles(100) == [0, 1, 2]
    assert documents.tiles(1) == [0, 1, 2]  # the last document's third sentence is alone
    assert documents.chunk(4, 2, 3) == 7
    assert documents.chunk(4, 2, 1) == 6


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"text\.txt is empty"),
        ("\n\n", r"text\.txt has no sentences"),
        ("ba\nca\nda\n", r"has 1 documents of two sentences or more; two for training and two for validation"),
        ("ba\n\nca\n\nda\n\nfa\n", r"has 0 documents of two sentences or more"),
        ("ba\nca\n\n" * 3, r"has 3 documents of two sentences or more"),
        (b"ba\nc\xff", r"text\.txt, line 2: byte 0xff is not UTF-8"),
        ("ba\n\x07\n\n" * 4, r"fewer than two documents for training, or for validation, whose sentences have any"),
    ],
)
def test_texts_that_do_not_suffice_are_refused(file, text, message):
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(DataError, match=message):
        config(file).load_with(0, VOCABULARY)


def test_what_does_not_fit_is_refused(file, tmp_path):
    with pytest.raises(DataError, match=r"read in pieces of words, got a WordVocabulary"):
        config(file).load_with(0, WordVocabulary(["a"]))
    with pytest.raises(DataError, match=r"the model brings its vocabulary: leave out --data\.vocabulary, got v"):
        config(file, vocabulary="v").load_with(0, VOCABULARY)
    with pytest.raises(FileNotFoundError, match=r"has neither tokenizer\.json nor vocab\.txt"):
        config(file, vocabulary=str(tmp_path)).load(0)
    (tmp_path / "vocab.txt").write_text("a\nb\n")
    with pytest.raises(DataError, match=r"data\.vocabulary: .*vocab\.txt holds no WordPiece tokenizer"):
        config(file, vocabulary=str(tmp_path)).load(0)
    with pytest.raises(DataError, match=r"data\.vocabulary_size: a vocabulary of 9 pieces cannot hold"):
        config(file, vocabulary_size=9).load(0)
    with pytest.raises(DataError, match=r"--data\.validation-fraction 0\.95 leaves 1 of 12 documents"):
        config(file, validation_fraction=0.95).load(0)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"batch_size": 0}, "data.batch_size must be at least 1, got 0"),
        ({"evaluation_batch_size": 0}, "data.evaluation_batch_size must be at least 1, got 0"),
        ({"sequence_length": 4}, "data.sequence_length must be at least 5, got 4"),
        ({"vocabulary_size": 5}, "data.vocabulary_size must exceed 5, got 5"),
        ({"mask_rate": 0.0}, r"data.mask_rate must lie in \(0, 1\), got 0.0"),
        ({"validation_fraction": 1.0}, r"data.validation_fraction must lie in \(0, 1\), got 1.0"),
    ],
)
def test_config_that_cannot_be_is_refused_with_field_and_value(fields, message):
    with pytest.raises(ValueError, match=message):
        MaskedText(**fields)
