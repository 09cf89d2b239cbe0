"""Sentences as in a file, and counts of irregular ones."""

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

from jaxnlp.text.conllu import TreeSentence


class RawSentence(NamedTuple):
    """A sentence of a file.

    Attributes:
      lines: each word's line number in the file, from 1 [T].
      number: of the sentence, from 1.
      words: [T].
      labels: in the scheme of the file [T], or tuples of tags of several kinds; None = none in the file.
      source: the sentence of a CoNLL-U file, for tags of several kinds.
      has_spans: whether the file has positions of entities instead of labels, which are then BIO.
      before, after: words of its neighbours in the file.
    """

    lines: tuple[int, ...]
    number: int
    words: tuple[str, ...]
    labels: tuple[Any, ...] | None
    source: TreeSentence | None = None
    has_spans: bool = False
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()

    @property
    def line(self) -> int:
        """The line on which the sentence starts."""
        return self.lines[0]


class _Count(NamedTuple):
    number: int
    first: str


@dataclasses.dataclass
class Counts:
    """Counts of a file's irregular labels, long sentences and skipped sentences, with the first position of each."""

    _counts: dict[tuple[str, str], _Count] = dataclasses.field(default_factory=dict)

    def add(self, one: str, several: str, position: str, number: int = 1) -> None:
        """Counts irregular things of a kind.

        Args:
          one, several: messages about one and about several of them, without the number at the start.
          position: of the first.
          number: of them at this position.
        """
        if number:
            before = self._counts.get((one, several), _Count(0, position))
            self._counts[one, several] = before._replace(number=before.number + number)

    def add_sentence(self, what: str, position: str) -> None:
        """Counts an irregular sentence. Args: what: an adjective, or a participle."""
        self.add(f"sentence is {what}", f"sentences are {what}", position)

    def add_illegal(self, sentence: RawSentence, indices: Sequence[int]) -> None:
        """Counts labels that may not follow the previous label."""
        word = f", word {indices[0] + 1}" if indices else ""
        self.add(
            "label may not follow the one before it and begins an entity",
            "labels may not follow the ones before them and begin entities",
            f"sentence {sentence.number}, line {sentence.line}{word}",
            len(indices),
        )

    def add_new(self, sentence: RawSentence, number: int) -> None:
        """Counts words with a tag that is not in the training sentences."""
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
