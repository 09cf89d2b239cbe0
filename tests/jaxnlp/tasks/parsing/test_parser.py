import jax
import numpy as np
import pytest

from data.small_grammar import grammar_sentences
from jaxnlp.runs import load_run
from jaxnlp.tasks.parsing.parser import SentenceParser, parse_of
from jaxnlp.text.conllu import sentence_of


@pytest.fixture(scope="module")
def trained(run):
    return load_run(run)


@pytest.fixture(scope="module")
def sentences():
    return [sentence_of(one.words, one.tags, name=str(n)) for n, one in enumerate(grammar_sentences(40, seed=98))]


@pytest.mark.thorough
def test_sentences_of_all_lengths_keep_their_order_and_other_sentences_change_nothing(trained, sentences):
    parse = SentenceParser(trained)
    together = parse(sentences)
    assert [len(tree.heads) for tree in together] == [len(one.words) for one in sentences]
    alone = parse(sentences[7:8]) + parse(sentences[3:4])
    assert alone == [together[7], together[3]]
    assert parse([]) == []


@pytest.mark.thorough
def test_results_have_the_length_that_is_asked_for(trained, sentences):
    processor = trained.processor
    batch = processor.batch([processor.encode(one) for one in sentences[:2]], 2, 32)
    plain, longer = (
        jax.jit(parse_of(trained.model, processor, positions=positions))(trained.params, batch)
        for positions in (None, 40)
    )
    assert (plain.heads.shape, longer.heads.shape) == ((2, 32), (2, 40))
    np.testing.assert_array_equal(longer.heads[:, :32], plain.heads)
    assert not np.asarray(longer.relations[:, 32:]).any()


def test_a_sentence_that_is_too_long_is_named(trained):
    long = sentence_of(["a"] * 33, ["DET"] * 33, name="s7")
    with pytest.raises(ValueError, match="line 1, sentence s7: a sentence of 33 words exceeds the maximum of 32 words"):
        SentenceParser(trained)([long])


def test_a_sentence_without_words_is_named_and_not_called_long(trained):
    with pytest.raises(ValueError, match=r"line 1, sentence s8: a sentence needs at least one word, got none$"):
        SentenceParser(trained)([sentence_of([], name="s8")])
