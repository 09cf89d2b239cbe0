import numpy as np
import pytest

from jaxnlp.text.conllu import tree_problem
from jaxnlp.text.transitions import (
    LEFT,
    REDUCE,
    RIGHT,
    ROOT_ARC,
    SHIFT,
    Configuration,
    PartialParse,
    kinds_of_transitions,
    minibatch_parse,
    num_transitions,
    transition_id,
)


@pytest.mark.parametrize(
    ("transition", "stack", "buffer", "after", "rest", "arcs"),
    [
        ("S", ["ROOT", "the"], ["cat", "sat"], ["ROOT", "the", "cat"], ["sat"], []),
        ("LA", ["ROOT", "the", "cat"], ["sat"], ["ROOT", "cat"], ["sat"], [("cat", "the")]),
        ("RA", ["ROOT", "run", "fast"], [], ["ROOT", "run"], [], [("run", "fast")]),
    ],
)
def test_single_steps_of_the_assignment(transition, stack, buffer, after, rest, arcs):
    parse = PartialParse([])
    parse.stack, parse.buffer = stack, buffer
    parse.parse_step(transition)
    assert (parse.stack, parse.buffer, parse.dependencies) == (after, rest, arcs)


def test_a_whole_parse_of_the_assignment():
    sentence = ["parse", "this", "sentence"]
    found = PartialParse(sentence).parse(["S", "S", "S", "LA", "RA", "RA"])
    assert found == [("sentence", "this"), ("parse", "sentence"), ("ROOT", "parse")]
    assert sentence == ["parse", "this", "sentence"]


def test_the_trace_of_i_parsed_this_sentence_correctly():
    parse = PartialParse(["I", "parsed", "this", "sentence", "correctly"])
    trace = []
    for transition in ("S", "S", "LA", "S", "S", "LA", "RA", "S", "RA", "RA"):
        parse.parse_step(transition)
        trace.append((" ".join(parse.stack), len(parse.buffer), len(parse.dependencies)))
    assert trace == [
        ("ROOT I", 4, 0),
        ("ROOT I parsed", 3, 0),
        ("ROOT parsed", 3, 1),
        ("ROOT parsed this", 2, 1),
        ("ROOT parsed this sentence", 1, 1),
        ("ROOT parsed sentence", 1, 2),
        ("ROOT parsed", 1, 3),
        ("ROOT parsed correctly", 0, 3),
        ("ROOT parsed", 0, 4),
        ("ROOT", 0, 5),
    ]
    assert parse.dependencies[-1] == ("ROOT", "parsed")


class Unidirectional:
    """The model of the assignment's test: shifts everything, then all arcs go to one side."""

    def __init__(self):
        self.sizes = []

    def predict(self, partial_parses):
        self.sizes.append(len(partial_parses))
        return ["S" if p.buffer else "RA" if p.stack[1] == "right" else "LA" for p in partial_parses]


def test_minibatches_of_the_assignment():
    sentences = ["right arcs only", "right arcs only again", "left arcs only", "left arcs only again"]
    model = Unidirectional()
    found = minibatch_parse([text.split() for text in sentences], model, 2)
    assert [set(arcs) for arcs in found] == [
        {("ROOT", "right"), ("arcs", "only"), ("right", "arcs")},
        {("ROOT", "right"), ("arcs", "only"), ("only", "again"), ("right", "arcs")},
        {("only", "ROOT"), ("only", "arcs"), ("only", "left")},
        {("again", "ROOT"), ("again", "arcs"), ("again", "left"), ("again", "only")},
    ]
    assert model.sizes == [2] * 12 + [1] * 4  # a finished parse leaves its place to the next one


def test_a_step_without_words_is_refused():
    with pytest.raises(ValueError, match=r"LA is not possible with the stack \['ROOT'\] and the buffer \['a'\]"):
        PartialParse(["a"]).parse_step("LA")
    with pytest.raises(ValueError, match="must be S, LA or RA, got 'X'"):
        PartialParse(["a"]).parse_step("X")


def test_batches_without_parses_are_refused_and_sentences_without_words_are_finished():
    with pytest.raises(ValueError, match="batch_size must be at least 1, got 0"):
        minibatch_parse([["a"]], Unidirectional(), 0)
    assert minibatch_parse([[], ["right"], []], Unidirectional(), 2) == [[], [("ROOT", "right")], []]


def test_transitions_are_numbered_without_gaps():
    relations = 4
    kinds = kinds_of_transitions(relations)
    assert len(kinds) == num_transitions(relations) == 10
    pairs = [
        (SHIFT, 0),
        (REDUCE, 0),
        *((LEFT, r) for r in range(1, 4)),
        (ROOT_ARC, 0),
        *((RIGHT, r) for r in (1, 2, 3)),
    ]
    numbers = [transition_id(kind, relation, relations) for kind, relation in pairs]
    assert [kinds[number] for number in numbers] == [kind for kind, _ in pairs]
    assert sorted({*range(10)} - {*numbers}) == [kinds.index(-1)]


@pytest.mark.parametrize("system", ["arc_standard", "arc_eager"])
def test_every_sequence_of_legal_transitions_ends_with_a_tree_with_one_root(system):
    generator = np.random.default_rng(0)
    moved_back = 0
    for length in generator.integers(1, 15, size=500):
        configuration = Configuration(system, int(length))
        steps = 0
        while not configuration.finished:
            legal = np.flatnonzero(configuration.legal())
            configuration.apply(int(generator.choice(legal)))
            moved_back += configuration.moved_back > 0
            steps += 1
        heads = [max(head, 0) for head in configuration.heads[1:]]
        assert tree_problem(heads) is None
        assert heads.count(0) == 1
        assert steps == 2 * length if system == "arc_standard" else steps <= 4 * length
    assert (moved_back > 0) == (system == "arc_eager")


def test_nodes_are_three_of_the_stack_three_of_the_buffer_and_the_dependents_of_two():
    configuration = Configuration("arc_standard", 9)
    # 1 <- 3, 2 <- 3, then 4 <- 5, 5 <- 6 and 7 <- 6 -> 8, all below the stack 3 6.
    for kind in (SHIFT, SHIFT, SHIFT, LEFT, LEFT, SHIFT, SHIFT, LEFT, SHIFT, LEFT, SHIFT, RIGHT, SHIFT, RIGHT):
        configuration.apply(kind)
    assert configuration.stack == [0, 3, 6]
    assert configuration.nodes() == [
        *(6, 3, 0),
        *(9, -1, -1),
        *(5, 8, -1, 7, 4, -1),  # of 6: leftmost, rightmost, the second ones, and those below
        *(1, -1, 2, -1, -1, -1),  # of 3
    ]


def test_in_arc_eager_the_first_word_of_the_buffer_takes_the_place_of_the_second_word_of_the_stack():
    configuration = Configuration("arc_eager", 4)
    for kind in (SHIFT, LEFT, SHIFT, RIGHT):
        configuration.apply(kind)
    assert (configuration.stack, configuration.buffer) == ([2, 3], [4])
    assert configuration.nodes() == [3, 2, -1, 4, -1, -1, *[-1] * 12]
    configuration.apply(REDUCE)
    assert configuration.nodes() == [2, -1, -1, 4, -1, -1, 1, 3, -1, -1, -1, -1, *[-1] * 6]


def test_illegal_transitions_are_refused():
    with pytest.raises(ValueError, match=r"illegal transition 1 with the stack \[0\] and the buffer \[1\]"):
        Configuration("arc_standard", 1).apply(REDUCE)
