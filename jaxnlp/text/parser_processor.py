"""Between sentences and arrays for dependency parsers: words, tags, relations and the transition system."""

import dataclasses
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np

from jaxnlp.text import list_of_strings
from jaxnlp.text.conllu import ROOT, TreeSentence, universal
from jaxnlp.text.transitions import System, num_transitions

TagColumn = Literal["upos", "xpos", "none"]
ABSENT_ID, ROOT_ID, UNKNOWN_ID, FIRST_ID = range(4)
"""The ids of no word, of ROOT, of a word that is not in the vocabulary, and of its first word. Tags have the same."""


@dataclasses.dataclass(frozen=True)
class ParserProcessor:
    """The processor of dependency parsers. Equal by value.

    Attributes:
      words: the vocabulary, in lowercase, in the order of the ids from FIRST_ID on.
      tags: the tags, in the order of the ids from FIRST_ID on; () = the parser reads no tags.
      relations: the relations, of which root is the first, in the order of the ids.
      system: of the transitions.
      tag_column: the tags that are read.
      subtypes: whether relations have their subtypes, as in nsubj:pass.
      max_length: maximum length of a sentence, in words.
    """

    words: tuple[str, ...]
    tags: tuple[str, ...]
    relations: tuple[str, ...]
    system: System = "arc_standard"
    tag_column: TagColumn = "upos"
    subtypes: bool = True
    max_length: int = 256

    counted: ClassVar[str] = "words"

    def __post_init__(self):
        if not self.relations or self.relations[0] != ROOT:
            raise ValueError(f"the first relation must be {ROOT}, got {', '.join(self.relations[:1]) or 'none'}")
        for name in ("words", "tags", "relations"):
            if len(set(getattr(self, name))) != len(getattr(self, name)):
                raise ValueError(f"{name} must be distinct")
        for name, choices in (("system", get_args(System)), ("tag_column", get_args(TagColumn))):
            if getattr(self, name) not in choices:
                raise ValueError(f"{name} must be one of {', '.join(choices)}, got {getattr(self, name)!r}")
        if self.max_length < 1:
            raise ValueError(f"max_length must be at least 1, got {self.max_length}")
        word_ids = {word: number for number, word in enumerate(self.words, FIRST_ID)}
        tag_ids = {tag: number for number, tag in enumerate(self.tags, FIRST_ID)}
        relation_ids = {relation: number for number, relation in enumerate(self.relations)}
        object.__setattr__(self, "_ids", (word_ids, tag_ids, relation_ids))

    @classmethod
    def of_sentences(
        cls,
        sentences: Sequence[TreeSentence],
        *,
        minimum_count: int,
        tag_column: TagColumn,
        subtypes: bool,
        **rest: Any,
    ) -> Self:
        """The processor of training sentences with trees; the arguments are those of the class, and minimum_count, of a
        word."""
        words = Counter(word.lower() for sentence in sentences for word in sentence.words)
        tags = Counter(tag for sentence in sentences for tag in tags_of(sentence, tag_column))
        relations = Counter(
            shown(relation, subtypes) for sentence in sentences for relation in sentence.relations or ()
        )
        return cls(
            _frequent(words, minimum_count),
            _frequent(tags, 1),
            (ROOT, *_frequent({name: count for name, count in relations.items() if name != ROOT}, 1)),
            tag_column=tag_column,
            subtypes=subtypes,
            **rest,
        )

    @property
    def vocabulary_size(self) -> int:
        """V, the number of word ids."""
        return FIRST_ID + len(self.words)

    @property
    def num_tags(self) -> int:
        """The number of tag ids."""
        return FIRST_ID + len(self.tags)

    @property
    def num_relations(self) -> int:
        """R."""
        return len(self.relations)

    @property
    def num_transitions(self) -> int:
        """C."""
        return num_transitions(len(self.relations))

    def relation_id(self, relation: str) -> int | None:
        """The number of a relation; None = no training sentence has it."""
        found: int | None = self._ids[2].get(shown(relation, self.subtypes))  # type: ignore[attr-defined]
        return found

    def unknown_words(self, sentences: Iterable[TreeSentence]) -> int:
        """How many words are not in the vocabulary."""
        return sum(word.lower() not in self._ids[0] for one in sentences for word in one.words)  # type: ignore[attr-defined]

    def batch(self, sentences: Sequence[TreeSentence], size: int, length: int) -> dict[str, np.ndarray]:
        """Sentences as a batch of B rows; the last ones are padding.

        Args:
          sentences: of at most T words.
          size: B.
          length: T.

        Returns:
          `words` [B, T] int32, `tags` [B, T] int32, 0 where tags are not read; `word_mask` [B, T] bool, False for
          padding; `loss_mask` [B] bool, False for rows of padding.
        """
        word_ids, tag_ids, _ = self._ids  # type: ignore[attr-defined]
        found = {name: np.zeros((size, length), np.int32) for name in ("words", "tags")}
        mask = np.zeros((size, length), bool)
        for row, sentence in enumerate(sentences):
            n = len(sentence.words)
            found["words"][row, :n] = [word_ids.get(word.lower(), UNKNOWN_ID) for word in sentence.words]
            if self.tags:
                tags = tags_of(sentence, self.tag_column)
                found["tags"][row, :n] = [tag_ids.get(tag, UNKNOWN_ID) for tag in tags]
            mask[row, :n] = True
        return {**found, "word_mask": mask, "loss_mask": np.arange(size) < len(sentences)}

    def to_json(self) -> dict[str, Any]:
        """Its fields as JSON."""
        return {
            "words": list(self.words),
            "tags": list(self.tags),
            "relations": list(self.relations),
            "system": self.system,
            "tag_column": self.tag_column,
            "subtypes": self.subtypes,
            "max_length": self.max_length,
        }

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Self:
        """What `to_json` returned. Raises: ValueError naming the field that is something else."""
        lists = {name: tuple(list_of_strings(fields, name)) for name in ("words", "tags", "relations")}
        for name, kind in (("system", str), ("tag_column", str), ("subtypes", bool), ("max_length", int)):
            if not isinstance(fields.get(name), kind):
                raise ValueError(f"parser: {name} is missing or not of type {kind.__name__}")
        rest = {name: fields[name] for name in ("system", "tag_column", "subtypes", "max_length")}
        return cls(**lists, **rest)


def tags_of(sentence: TreeSentence, column: TagColumn) -> tuple[str, ...]:
    """The tags of a sentence that a parser reads; () = none."""
    if column == "none":
        return ()
    return sentence.upos if column == "upos" else sentence.xpos


def shown(relation: str, subtypes: bool) -> str:
    """A relation with or without its subtype. All kinds of root are the relation root, which has no subtype."""
    short = universal(relation)
    return relation if subtypes and short != ROOT else short


def _frequent(counts: "Counter[str] | dict[str, int]", least: int) -> tuple[str, ...]:
    """What occurs at least so often, the most frequent first, then in alphabetical order."""
    found = [name for name, count in counts.items() if count >= least]
    return tuple(sorted(found, key=lambda name: (-counts[name], name)))
