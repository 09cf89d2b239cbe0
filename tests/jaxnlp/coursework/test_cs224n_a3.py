"""The assignment's checks of `PartialParse` and `minibatch_parse` are in tests/jaxnlp/text/test_transitions.py."""

import re

import pytest

from jaxnlp.coursework.cs224n_a3 import ParserModel, PartialParse, minibatch_parse
from jaxnlp.tasks.parsing.parser import SentenceParser
from tests.coursework_runs import parser
from tests.jaxnlp.models.parser_helpers import SENTENCES
from tests.jaxnlp.tasks.parsing.graph_helpers import trained_of

TEXTS = ["the dog sees the cat", "cats sleep", "dog", "a cat sees a dog a dog sees"]
WORDS = [text.split() for text in TEXTS]


def heads_of(dependencies):
    """The position of each word's head, 0 for ROOT."""
    found = {word.position: getattr(head, "position", 0) for head, word in dependencies}
    return tuple(found[position] for position in range(1, 1 + len(dependencies)))


@pytest.mark.sweep(1)
@pytest.mark.parametrize("batch_size", [2, 10])
def test_minibatches_find_the_trees_of_the_runs_own_parser(batch_size):
    model = ParserModel(parser(), WORDS)
    assert model.sentences == WORDS
    found = minibatch_parse(model.sentences, model, batch_size)
    assert [heads_of(dependencies) for dependencies in found] == [tree.heads for tree in parser().parse(WORDS)]
    for words, dependencies in zip(WORDS, found, strict=True):
        assert sorted(word for _, word in dependencies) == sorted(words)
        assert dependencies[-1][0] == "ROOT"


@pytest.mark.thorough
def test_sentences_of_a_file_are_read_with_their_tags():
    run = parser("upos")
    model = ParserModel(run, SENTENCES)
    found = minibatch_parse(model.sentences, model, 64)
    assert [heads_of(dependencies) for dependencies in found] == [
        tuple(tree.heads) for tree in SentenceParser(run)(SENTENCES)
    ]
    untagged = ParserModel(parser(), SENTENCES)
    assert minibatch_parse(untagged.sentences, untagged, 64) != found
    with pytest.raises(ValueError, match=r"this parser reads tags \(upos\), and the words have none"):
        ParserModel(run, WORDS)


def test_a_parse_can_begin_with_a_step_of_ones_own_that_adds_no_arc():
    model = ParserModel(parser(), WORDS)
    (parse,) = map(PartialParse, model.sentences[:1])
    parse.parse(["S", "S", "S"])
    while parse.buffer or len(parse.stack) > 1:
        parse.parse_step(*model.predict([parse]))
    assert {word for _, word in parse.dependencies} == {*WORDS[0]}


@pytest.mark.parametrize(
    ("parse", "message"),
    [
        (lambda _: PartialParse(["cats", "sleep"]), "expected a parse of one of the model's sentences, got ['cats',"),
        (lambda model: PartialParse(model.sentences[0][1:]), "expected a parse of one of the model's sentences"),
        (lambda model: stepped(model, "S", "S", "LA"), "the arc ('sleep', 'cats') was not predicted by this model"),
        (lambda model: parsed(model), "illegal transition"),
    ],
    ids=["other words", "part of a sentence", "an arc of one's own", "finished"],
)
def test_parses_that_the_model_cannot_continue_are_refused(parse, message):
    model = ParserModel(parser(), WORDS)
    with pytest.raises(ValueError, match=re.escape(message)):
        model.predict([parse(model)])


def stepped(model, *transitions):
    parse = PartialParse(model.sentences[1])
    parse.parse(transitions)
    return parse


def parsed(model):
    parse = PartialParse(model.sentences[2])
    for _ in range(2):
        parse.parse_step(*model.predict([parse]))
    return parse


def test_runs_and_sentences_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match=r"those of arc_standard, and graph was trained with data.system graph"):
        ParserModel(trained_of(), WORDS)
    with pytest.raises(ValueError, match=r"sentence 2: a sentence needs at least one word, got none"):
        ParserModel(parser(), [*WORDS[:1], []])
    with pytest.raises(ValueError, match=r"sentence 1: a sentence of 17 words exceeds the maximum of 16 words"):
        ParserModel(parser(), [["a"] * 17])
