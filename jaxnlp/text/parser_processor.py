"""The processor of dependency parsers: words, tags, relations, and the parsing method."""

import dataclasses
import functools
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np

from jaxnlp.text import list_of_strings, most_frequent, require_fields
from jaxnlp.text.conllu import ROOT, UNSPECIFIED, TreeSentence, universal
from jaxnlp.text.encoder_vocabulary import EncoderVocabulary
from jaxnlp.text.padding import padded
from jaxnlp.text.transitions import System, num_transitions
from jaxnlp.text.word_inputs import FIRST_ID, UNKNOWN_ID, WordInputs

TreeSystem = Literal[System, "graph"]
"""How a parser builds a tree: by a transition system, or from the scores of all arcs (graph)."""
TagColumn = Literal["upos", "xpos", "both", "none"]
"""The tags that a parser reads: universal POS tags, the treebank's own tags, pairs of both, or none."""
EncodedSentence = dict[str, np.ndarray]
"""The arrays of one sentence, without padding."""


@dataclasses.dataclass(frozen=True)
class ParserProcessor:
    """The processor of dependency parsers. Equal by value.

    Attributes:
      inputs: the vocabularies of words and characters, and BERT's tokenizer if any.
      tags: the tags, in the order of their ids, which start at FIRST_ID; () = the parser reads no tags.
      relations: the relations in the order of their ids; the first is root.
      system, tag_column: see `TreeSystem` and `TagColumn`.
      subtypes: whether relations keep their subtypes, as in nsubj:pass.
    """

    inputs: WordInputs
    tags: tuple[str, ...]
    relations: tuple[str, ...]
    system: TreeSystem = "arc_standard"
    tag_column: TagColumn = "upos"
    subtypes: bool = True

    counted: ClassVar[str] = "words"

    def __post_init__(self):
        if not self.relations or self.relations[0] != ROOT:
            raise ValueError(f"the first relation must be {ROOT}, got {', '.join(self.relations[:1]) or 'none'}")
        for name in ("tags", "relations"):
            if len(set(getattr(self, name))) != len(getattr(self, name)):
                raise ValueError(f"{name} must be distinct")
        for name, choices in (("system", get_args(TreeSystem)), ("tag_column", get_args(TagColumn))):
            if getattr(self, name) not in choices:
                raise ValueError(f"{name} must be one of {', '.join(choices)}, got {getattr(self, name)!r}")

    @property
    def vocabulary(self) -> EncoderVocabulary | None:
        """BERT's tokenizer; None = the model has no BERT."""
        return self.inputs.pieces

    @classmethod
    def of_sentences(
        cls,
        sentences: Sequence[TreeSentence],
        inputs: WordInputs,
        *,
        tag_column: TagColumn,
        subtypes: bool,
        system: TreeSystem,
    ) -> Self:
        """The processor with the tags and the relations of training sentences. A word without a tag has the unknown
        tag."""
        tags = Counter(tag for sentence in sentences for tag in tags_of(sentence, tag_column))
        for blank in (UNSPECIFIED, f"{UNSPECIFIED} {UNSPECIFIED}"):
            del tags[blank]
        relations = Counter(
            shown(relation, subtypes) for sentence in sentences for relation in sentence.relations or ()
        )
        del relations[ROOT]
        return cls(
            inputs,
            most_frequent(tags),
            (ROOT, *most_frequent(relations)),
            tag_column=tag_column,
            subtypes=subtypes,
            system=system,
        )

    @functools.cached_property
    def _tag_ids(self) -> dict[str, int]:
        return {tag: index for index, tag in enumerate(self.tags, FIRST_ID)}

    @functools.cached_property
    def _relation_ids(self) -> dict[str, int]:
        return {relation: index for index, relation in enumerate(self.relations)}

    @property
    def max_length(self) -> int:
        """Maximum length of a sentence, in words."""
        return self.inputs.max_length

    @property
    def num_tags(self) -> int:
        """Number of tag ids; 0 = the parser reads no tags."""
        return FIRST_ID + len(self.tags) if self.tags else 0

    @property
    def num_relations(self) -> int:
        """R."""
        return len(self.relations)

    @property
    def num_transitions(self) -> int:
        """C."""
        return num_transitions(len(self.relations))

    def relation_id(self, relation: str) -> int | None:
        """The id of a relation; None = not in the training sentences."""
        return self._relation_ids.get(shown(relation, self.subtypes))

    def unknown_words(self, sentences: Iterable[TreeSentence]) -> int:
        """Number of words that are not in the vocabulary."""
        return sum(self.inputs.unknown(sentence.words) for sentence in sentences)

    def untagged(self, sentence: TreeSentence) -> int:
        """Number of words without a tag, or without one of both; 0 if the parser reads no tags.

        Pairs such as "PUNCT _" are tags if training sentences have them.
        """
        if not self.tags:
            return 0
        tags = tags_of(sentence, self.tag_column)
        return sum(UNSPECIFIED in tag.split(" ") and tag not in self._tag_ids for tag in tags)

    def tag_note(self, sentences: Sequence[TreeSentence]) -> list[str]:
        """A note that counts training words without a tag; [] if there are none."""
        tags = (tags_of(one, self.tag_column) if self.tags else () for one in sentences)
        unknown = (sum(tag not in self._tag_ids for tag in of_sentence) for of_sentence in tags)
        return _note(sentences, unknown, "no known tag and are read with the unknown tag")

    def relation_note(self, sentences: Sequence[TreeSentence]) -> list[str]:
        """A note that counts words whose relation is not in the training sentences; [] if there are none."""
        unknown = ([*map(self.relation_id, one.relations or ())].count(None) for one in sentences)
        return _note(sentences, unknown, "a relation that no training sentence has")

    def encode(self, sentence: TreeSentence) -> EncodedSentence:
        """The arrays of a sentence: those of `WordInputs.encode`, and `tags` [n] int32, 0 if the parser reads no tags.

        Raises: ValueError for a sentence that is too long, in words or in tokens of BERT.
        """
        tags = np.zeros(len(sentence.words), np.int32)
        if self.tags:
            tags[:] = [self._tag_ids.get(tag, UNKNOWN_ID) for tag in tags_of(sentence, self.tag_column)]
        return {**self.inputs.encode(sentence.words), "tags": tags}

    def batch(self, encoded: Sequence[EncodedSentence], size: int, length: int) -> dict[str, np.ndarray]:
        """Encoded sentences as a batch [B, T]; the last rows are padding.

        Returns: the arrays of `WordInputs.batch`; `tags` [B, T] int32; `loss_mask` [B] bool, False for rows of padding.
        """
        batch = self.inputs.batch(encoded, size, length)
        tags = padded([one["tags"] for one in encoded], batch["word_mask"])
        return batch | {"tags": tags, "loss_mask": np.arange(size) < len(encoded)}

    def to_json(self) -> dict[str, Any]:
        """Its fields as JSON."""
        return {
            "inputs": self.inputs.to_json(),
            "tags": list(self.tags),
            "relations": list(self.relations),
            "system": self.system,
            "tag_column": self.tag_column,
            "subtypes": self.subtypes,
        }

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Self:
        """The processor whose `to_json` this is. Raises: ValueError naming the wrong field."""
        tags, relations = (tuple(list_of_strings(fields, name)) for name in ("tags", "relations"))
        require_fields(fields, "parser", inputs=dict, system=str, tag_column=str, subtypes=bool)
        rest = {name: fields[name] for name in ("system", "tag_column", "subtypes")}
        return cls(WordInputs.from_json(fields["inputs"]), tags, relations, **rest)


def tags_of(sentence: TreeSentence, column: TagColumn) -> tuple[str, ...]:
    """The tags of a sentence that a parser reads; () = none."""
    if column == "none":
        return ()
    if column == "both":
        return tuple(f"{one} {other}" for one, other in zip(sentence.upos, sentence.xpos, strict=True))
    return sentence.upos if column == "upos" else sentence.xpos


def shown(relation: str, subtypes: bool) -> str:
    """A relation with or without its subtype; every subtype of root becomes root."""
    short = universal(relation)
    return relation if subtypes and short != ROOT else short


def _note(sentences: Sequence[TreeSentence], counts: Iterable[int], what: str) -> list[str]:
    """A note on words. Args: counts: their number in each sentence; what: their property."""
    affected = [(one, count) for one, count in zip(sentences, counts, strict=True) if count]
    if not affected:
        return []
    total, words = sum(count for _, count in affected), sum(len(one.words) for one in sentences)
    return [f"{total:,} of {words:,} words have {what} (first: {affected[0][0].where})"]
