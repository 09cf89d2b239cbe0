"""What tests of masked text share: documents whose words say where they stand, and the examples made of them."""

import functools
import itertools

import numpy as np

from data.masked_text import MaskedText
from jaxnlp.text.wordpiece import SEP, SPECIAL, WordPieceVocabulary

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


def texts_of(row):
    """A and B as pieces."""
    ends = np.flatnonzero(row["original"] == IDS[SEP])
    pieces = VOCABULARY.tokens(row["original"])
    return pieces[1 : ends[0]], pieces[ends[0] + 1 : ends[1]]


def same(found, expected):
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert one.keys() == other.keys()
        for name in other:
            np.testing.assert_array_equal(one[name], other[name])
