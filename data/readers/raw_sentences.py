"""Sentences as they are in a file, and counts of irregular ones."""

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

from jaxnlp.text.conllu import TreeSentence


class RawSentence(NamedTuple):
    """A sentence of a file.

    Attributes:
      lines: the number of each word's line in the file, from 1 [T].
      number: number of the sentence, from 1.
      words: the words [T].
      labels: the labels in the scheme of the file [T], or tuples of tags of several kinds; None = the file has none.
      source: the sentence of a CoNLL-U file, if tags of several kinds are read.
    """

    lines: tuple[int, ...]
    number: int
    words: tuple[str, ...]
    labels: tuple[Any, ...] | None
    source: TreeSentence | None = None

    @property
    def line(self) -> int:
        """The line on which the sentence begins."""
        return self.lines[0]


class _Count(NamedTuple):
    number: int
    first: str


@dataclasses.dataclass
class Counts:
    """Counts of irregular labels, long sentences and skipped sentences of a file, with the position of the first of
    each."""

    _counts: dict[tuple[str, str], _Count] = dataclasses.field(default_factory=dict)

    def add(self, one: str, several: str, position: str, number: int = 1) -> None:
        """Counts irregular things of a kind.

        Args:
          one: a message about one of them, without the number at its start.
          several: the same about several of them.
          position: the position of the first.
          number: how many there are at this position.
        """
        if number:
            before = self._counts.get((one, several), _Count(0, position))
            self._counts[one, several] = before._replace(number=before.number + number)

    def add_sentence(self, what: str, position: str) -> None:
        """Counts a sentence that is irregular. Args: what: an adjective, or a participle."""
        self.add(f"sentence is {what}", f"sentences are {what}", position)

    def add_illegal(self, sentence: RawSentence, indices: Sequence[int]) -> None:
        """Counts labels that may not follow the label before them."""
        word = f", word {indices[0] + 1}" if indices else ""
        self.add(
            "label may not follow the one before it and begins an entity",
            "labels may not follow the ones before them and begin entities",
            f"sentence {sentence.number}, line {sentence.line}{word}",
            len(indices),
        )

    def add_new(self, sentence: RawSentence, number: int) -> None:
        """Counts words with a tag that no training sentence has."""
        self.add(
            "word has a tag that no training sentence has: it is an error, and the loss leaves out its sentence",
            "words have tags that no training sentence has: they are errors, and the loss leaves out their sentences",
            f"sentence {sentence.number}, line {sentence.line}",
            number,
        )

    def add_divided(self, sentence: RawSentence) -> None:
        """Counts a sentence that is too long."""
        position = f"sentence {sentence.number}, line {sentence.line}, {len(sentence.words):,} words"
        self.add_sentence("too long and divided", position)

    def notes(self) -> tuple[str, ...]:
        """Remarks that evaluation prints."""
        return tuple(
            f"{count.number:,} {one if count.number == 1 else several} (first: {count.first})"
            for (one, several), count in self._counts.items()
        )
