import functools

import numpy as np
import pytest

from data.pipelines.pair_batches import longer_side, pair_batch
from data.pipelines.stored_rows import StoredRows
from data.pipelines.tree_batches import derived, tree_batch, tree_length
from data.small_grammar import grammar_sentences
from jaxnlp.text.conllu import sentence_of
from jaxnlp.text.parser_processor import ParserProcessor
from jaxnlp.text.word_inputs import WordInputs
from jaxnlp.text.wordpiece import SPECIAL, WordPieceVocabulary

PIECES = WordPieceVocabulary.of_pieces([*SPECIAL, "the", "##e", *"abcdefghijklmnopqrstuvwxyz"])
SENTENCES = [
    sentence_of(one.words, one.tags, one.heads, one.relations, name=str(number))
    for number, one in enumerate(grammar_sentences(30, seed=5))
]
ONE_WORD = [sentence_of((word,), ("NOUN",), (0,), ("root",), name=word) for word in ("one", "two", "three")]


def trees_of(sentences, system, pieces=None):
    inputs = WordInputs.of_sentences([one.words for one in sentences], pieces=pieces, max_pieces=64)
    reader = ParserProcessor.of_sentences(sentences, inputs, tag_column="upos", subtypes=True, system=system)
    batch, trees = functools.partial(tree_batch, reader), [derived(sentence, reader) for sentence in sentences]
    return batch, trees, [tree_length(reader, tree) for tree in trees]


def pairs():
    generator = np.random.default_rng(0)
    ids = [tuple(generator.integers(4, 50, size).tolist() for size in generator.integers(1, 9, 2)) for _ in range(40)]
    return functools.partial(pair_batch, start=3), ids, list(map(longer_side, ids))


CASES = {
    "transitions": trees_of(SENTENCES, "arc_standard"),
    "eager": trees_of(SENTENCES, "arc_eager"),
    "heads": trees_of(SENTENCES, "graph"),
    "tokens of BERT": trees_of(SENTENCES, "arc_standard", PIECES),
    "one word each": trees_of(ONE_WORD, "arc_standard"),
    "pairs": pairs(),
}


@pytest.mark.parametrize("case", CASES)
def test_a_batch_is_that_of_the_function(case):
    batch, examples, lengths = CASES[case]
    rows, generator = StoredRows(batch, examples, lengths), np.random.default_rng(1)
    for more in (0, 1, 5):
        for count, size in ((0, 2), (1, 1), (3, 3), (2, 5)):
            indices = generator.choice(len(examples), count, replace=False).tolist()
            length = more + max([lengths[index] for index in indices], default=4)
            expected = batch([examples[index] for index in indices], size, length)
            found = rows.batch(indices, size, length)
            assert found.keys() == expected.keys()
            for name, array in expected.items():
                assert found[name].dtype == array.dtype
                np.testing.assert_array_equal(found[name], array, err_msg=name)
