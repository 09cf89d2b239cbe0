"""Transition systems of dependency parsing, in plain Python.

A parser has a stack of words and a buffer of words to read. Transitions change them, and some add an arc from a head to
a dependent.

arc_standard (the stack has ROOT at the bottom; s1 is the top of the stack, s2 the word below it, b1 the first word of
the buffer):

    SHIFT      move b1 to the stack
    LEFT-ARC   s1 -> s2, and remove s2
    RIGHT-ARC  s2 -> s1, and remove s1

ROOT gets its one dependent last: RIGHT-ARC from ROOT needs an empty buffer. So each parse is a tree with one root. It
has 2 n transitions.

arc_eager (ROOT is not on the stack; the last word without a head is the root):

    SHIFT      move b1 to the stack
    REDUCE     remove s1, which has a head
    LEFT-ARC   b1 -> s1, and remove s1, which has no head
    RIGHT-ARC  s1 -> b1, and move b1 to the stack

When the buffer is empty and s1 has no head, REDUCE moves s1 back to the buffer. From then on, SHIFT needs an empty
stack, so that s1 gets a head or dependents. So each parse is a tree with one root. It has at most 4 n transitions; that
of a gold tree has 2 n - 1, and moves no word back.

Sources: Nivre 2004 and 2008 for both; Stanford's CS224N, assignment 3, for `PartialParse` and `minibatch_parse`; Nivre
and Fernández-González 2014 for words that move back. Differs: REDUCE includes their UNSHIFT.
"""

from collections.abc import Sequence
from typing import Literal, Protocol

System = Literal["arc_standard", "arc_eager"]
SHIFT, REDUCE, LEFT, RIGHT, ROOT_ARC = range(5)
"""Kinds of transitions. ROOT_ARC is RIGHT-ARC from ROOT, whose relation is always root."""
KINDS = ("SHIFT", "REDUCE", "LEFT-ARC", "RIGHT-ARC", "RIGHT-ARC")
"""Their names."""
ABSENT = -1
"""The index of a missing node, such as the third word of a stack of two."""
NODES = 18
"""Nodes that describe a configuration; see `Configuration.nodes`."""
LABELLED = 6
"""The first of the nodes that are dependents, whose relations describe the configuration too."""


def num_transitions(relations: int) -> int:
    """Number of transitions C: SHIFT, REDUCE, and both arcs with each of R relations."""
    return 2 + 2 * relations


def transition_id(kind: int, relation: int, relations: int) -> int:
    """The id of a transition, from 0 to C - 1; relation 0 is root, which only the arc from ROOT has."""
    if kind in (SHIFT, REDUCE):
        return kind
    return 2 + relation + (0 if kind == LEFT else relations)


def kinds_of_transitions(relations: int) -> list[int]:
    """The kind of each of the C transitions; -1 for LEFT-ARC with the relation root, which never occurs."""
    return [SHIFT, REDUCE, -1, *[LEFT] * (relations - 1), ROOT_ARC, *[RIGHT] * (relations - 1)]


class Configuration:
    """The state of a parser in the middle of a sentence. Words are the numbers from 1 to n; ROOT is 0.

    Attributes:
      stack: its top is last.
      following: the next word to read; n + 1 = all are read.
      moved_back: a word that REDUCE has moved back to the buffer; 0 = none.
      heads: of each word, by its number [n + 1]; ABSENT = none yet.
      children: of each word, to the left and to the right, in the order of their arcs.
    """

    def __init__(self, system: System, length: int):
        self.system = system
        self.length = length
        self.stack = [0] if system == "arc_standard" else []
        self.following = 1
        self.moved_back = 0
        self.heads = [ABSENT] * (length + 1)
        self.children: tuple[list[list[int]], list[list[int]]] = (
            [[] for _ in self.heads],
            [[] for _ in self.heads],
        )

    @property
    def buffer(self) -> list[int]:
        """Words to read."""
        return [self.moved_back] if self.moved_back else list(range(self.following, self.length + 1))

    @property
    def front(self) -> int:
        """The first word of the buffer; ABSENT = it is empty."""
        if self.moved_back:
            return self.moved_back
        return self.following if self.following <= self.length else ABSENT

    @property
    def finished(self) -> bool:
        """Whether the tree is complete."""
        return self.front == ABSENT and len(self.stack) <= 1

    def legal(self) -> tuple[bool, bool, bool, bool, bool]:
        """Whether each kind of transition is allowed: SHIFT, REDUCE, LEFT, RIGHT, ROOT_ARC."""
        size, has_front, all_read = len(self.stack), self.front != ABSENT, self.following > self.length
        if self.system == "arc_standard":
            return has_front, False, size >= 3, size >= 3, size == 2 and all_read
        has_head = size > 0 and self.heads[self.stack[-1]] != ABSENT
        return (
            has_front and (not all_read or size == 0),
            has_head or (not has_front and size >= 2),
            has_front and size > 0 and not has_head,
            has_front and size > 0,
            False,
        )

    def apply(self, kind: int) -> int:
        """Makes a transition. Returns: the dependent of the new arc, or ABSENT. Raises: ValueError if it is illegal."""
        if not 0 <= kind < len(KINDS) or not self.legal()[kind]:
            raise ValueError(f"illegal transition {kind} with the stack {self.stack} and the buffer {self.buffer}")
        if kind == SHIFT:
            self._read()
            return ABSENT
        top = self.stack[-1]
        if kind == REDUCE:
            if self.heads[top] == ABSENT:
                self.moved_back = top
            self.stack.pop()
            return ABSENT
        if self.system == "arc_standard":
            below = self.stack[-2]
            head, dependent = (top, below) if kind == LEFT else (below, top)
            del self.stack[-2 if kind == LEFT else -1]
        else:
            head, dependent = (self.front, top) if kind == LEFT else (top, self.front)
            if kind == LEFT:
                self.stack.pop()
            else:
                self._read()
        self.heads[dependent] = head
        self.children[dependent > head][head].append(dependent)
        return dependent

    def _read(self) -> None:
        self.stack.append(self.front)
        if self.moved_back:
            self.moved_back = 0
        else:
            self.following += 1

    def nodes(self) -> list[int]:
        """The 18 nodes that describe the configuration; ABSENT for a missing node.

        Three words of the stack, s1 s2 s3; three of the buffer, b1 b2 b3; then for each of s1 and s2 the leftmost and
        the rightmost dependent, the second ones from both sides, the leftmost of the leftmost, and the rightmost of the
        rightmost. arc_eager has b1 instead of s2: its arcs are between s1 and b1.

        Source: Chen and Manning 2014, section 3.1.
        """
        stack = self.stack
        nodes = [stack[-depth] if len(stack) >= depth else ABSENT for depth in (1, 2, 3)]
        # Not from `buffer`: it is O(n), and a derivation would be quadratic.
        words = (
            [self.moved_back] if self.moved_back else range(self.following, min(self.following + 3, self.length + 1))
        )
        nodes += [*words, *[ABSENT] * (3 - len(words))]
        for node in (nodes[0], nodes[1] if self.system == "arc_standard" else nodes[3]):
            left, right = (sides[node] if node != ABSENT else [] for sides in self.children)
            leftmost, rightmost = (side[-1] if side else ABSENT for side in (left, right))
            second_left, second_right = (side[-2] if len(side) > 1 else ABSENT for side in (left, right))
            below_left = self.children[0][leftmost] if leftmost != ABSENT else []
            below_right = self.children[1][rightmost] if rightmost != ABSENT else []
            nodes += [leftmost, rightmost, second_left, second_right]
            nodes += [side[-1] if side else ABSENT for side in (below_left, below_right)]
        return nodes


class PartialParse:
    """A parse by arc_standard as in CS224N's assignment 3: items are words, and all transitions are allowed.

    Attributes:
      stack: ROOT, then words.
      buffer: words to read.
      dependencies: (head, dependent) pairs, in the order of the transitions.
    """

    def __init__(self, sentence: Sequence[str]):
        self.sentence = sentence
        self.stack = ["ROOT"]
        self.buffer = list(sentence)
        self.dependencies: list[tuple[str, str]] = []

    def parse_step(self, transition: str) -> None:
        """Makes the transition S, LA or RA. Raises: ValueError for another one, and if words are missing."""
        needed = {"S": self.buffer, "LA": self.stack[1:], "RA": self.stack[1:]}
        if transition not in needed:
            raise ValueError(f"a transition must be S, LA or RA, got {transition!r}")
        if not needed[transition]:
            raise ValueError(f"{transition} is not possible with the stack {self.stack} and the buffer {self.buffer}")
        if transition == "S":
            self.stack.append(self.buffer.pop(0))
        elif transition == "LA":
            self.dependencies.append((self.stack[-1], self.stack.pop(-2)))
        else:
            dependent = self.stack.pop()
            self.dependencies.append((self.stack[-1], dependent))

    def parse(self, transitions: Sequence[str]) -> list[tuple[str, str]]:
        """Makes the transitions, and returns the dependencies."""
        for transition in transitions:
            self.parse_step(transition)
        return self.dependencies


class TransitionModel(Protocol):
    """The model that `minibatch_parse` asks for transitions."""

    def predict(self, partial_parses: Sequence[PartialParse]) -> Sequence[str]:
        """The next transition of each parse."""


def minibatch_parse(
    sentences: Sequence[Sequence[str]], model: TransitionModel, batch_size: int
) -> list[list[tuple[str, str]]]:
    """The dependencies of each sentence. The first `batch_size` unfinished parses make one transition at a time.

    A parse is finished when its buffer is empty and its stack has only ROOT.

    Raises: ValueError for a batch_size below 1.
    """
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, got {batch_size}")
    parses = unfinished = [PartialParse(sentence) for sentence in sentences]
    while unfinished := [parse for parse in unfinished if parse.buffer or len(parse.stack) > 1]:
        batch = unfinished[:batch_size]
        for parse, transition in zip(batch, model.predict(batch), strict=True):
            parse.parse_step(transition)
    return [parse.dependencies for parse in parses]
