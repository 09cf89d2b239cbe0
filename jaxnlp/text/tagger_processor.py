"""The processor of taggers: word inputs, labels and their scheme."""

import dataclasses
import functools
import itertools
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self, get_args

import numpy as np

from jaxnlp.targets import of_part
from jaxnlp.text import list_of_strings, require_fields
from jaxnlp.text.conllu import TreeSentence
from jaxnlp.text.encoder_vocabulary import EncoderVocabulary
from jaxnlp.text.tag_schemes import (
    AllowedLabels,
    LabelledSpan,
    Scheme,
    allowed_labels,
    find_scheme,
    misspelt_entities,
    prefix_and_type,
    spans_of,
)
from jaxnlp.text.word_inputs import WordInputs
from jaxnlp.text.word_split import Unit


@dataclasses.dataclass(frozen=True)
class TaggedSentence:
    """A sentence of T words.

    Attributes:
      name: its number in the file, and the number of its part if it is split.
      words: [T].
      labels: in the processor's scheme [T], with several parts a tuple for each word; None = not known.
      scheme: of the file's labels, and of predictions; None = the processor's.
      source: the sentence of a CoNLL-U file, for the columns of predictions of several parts.
      before, after: words of its neighbours in the file; BERT reads `TaggerProcessor.context` of them.
    """

    name: str
    words: tuple[str, ...]
    labels: tuple[Any, ...] | None = None
    # The fingerprint of a run's data is made of this class's repr, and must not change.
    scheme: Scheme | None = dataclasses.field(default=None, repr=False)
    source: TreeSentence | None = dataclasses.field(default=None, repr=False)
    before: tuple[str, ...] = dataclasses.field(default=(), repr=False)
    after: tuple[str, ...] = dataclasses.field(default=(), repr=False)

    def part(self, name: str, words: slice) -> Self:
        """Some of its words; the others are their neighbours."""
        return dataclasses.replace(
            self,
            name=name,
            words=self.words[words],
            labels=self.labels and self.labels[words],
            before=(*self.before, *self.words[: words.start]),
            after=(*self.words[words.stop :], *self.after),
        )


def neighbours(sentences: Sequence[Sequence[str]], number: int) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    """The last `number` words before each sentence of a file, and the first `number` words after it."""
    words = [word for sentence in sentences for word in sentence]
    stops = itertools.accumulate(map(len, sentences))
    places = [(stop - len(sentence), stop) for sentence, stop in zip(sentences, stops, strict=True)]
    return [
        (tuple(words[max(start - number, 0) : start]), tuple(words[stop : stop + number])) for start, stop in places
    ]


@dataclasses.dataclass(frozen=True)
class TaggerProcessor:
    """The processor of taggers. Equal by value. `by_part` has the processor of each of several parts.

    Attributes:
      inputs: the vocabularies of words and characters.
      labels: of words, in the order of their ids; () = there are parts.
      scheme: of the labels.
      unit: the units into which a text is split.
      parts: names and labels of several kinds of tags, such as upos and xpos; () = one kind, without a name.
      context: number of words before and after a sentence that BERT reads, too.
    """

    inputs: WordInputs
    labels: tuple[str, ...]
    scheme: Scheme
    unit: Unit = "words"
    parts: tuple[tuple[str, tuple[str, ...]], ...] = ()
    context: int = 0

    counted: ClassVar[str] = "words"

    def __post_init__(self):
        for labels in [one for _, one in self.parts] or [self.labels]:
            if not labels or len(set(labels)) != len(labels):
                raise ValueError(f"labels must be distinct, and at least one, got {', '.join(labels) or 'none'}")
        if self.parts and (self.labels or self.has_entities):
            raise ValueError(f"parts have labels of words, and no others: expected the scheme none, got {self.scheme}")
        if self.scheme not in get_args(Scheme) or self.unit not in get_args(Unit):
            raise ValueError(f"unknown scheme or unit: {self.scheme!r} and {self.unit!r}")

    @functools.cached_property
    def by_part(self) -> dict[str, Self]:
        """The processor of each part, by name."""
        parts = {name: dataclasses.replace(self, labels=labels, parts=()) for name, labels in self.parts}
        return parts or {"": self}

    def divide(self, labels: Sequence[Any]) -> dict[str, list[str]]:
        """The labels of a sentence for each part, by name."""
        columns = [[one[index] for one in labels] for index in range(len(self.parts))] or [list(labels)]
        return dict(zip(self.by_part, columns, strict=True))

    def join(self, labels: Mapping[str, Sequence[Any]]) -> list[Any]:
        """The labels of a sentence, or other values of its words, from those of each part: see `divide`."""
        columns = [labels[name] for name in self.by_part]
        return list(zip(*columns, strict=True)) if self.parts else list(columns[0])

    @property
    def vocabulary(self) -> EncoderVocabulary | None:
        """BERT's tokenizer; None = the model has no BERT."""
        return self.inputs.pieces

    @property
    def has_entities(self) -> bool:
        """Whether labels are parts of entities; otherwise they are classes of words."""
        return self.scheme != "none"

    @functools.cached_property
    def types(self) -> tuple[str, ...]:
        """The types of entities, or without entities the labels."""
        if not self.has_entities:
            return self.labels
        return tuple(dict.fromkeys(kind for _, kind in map(prefix_and_type, self.labels) if kind))

    @functools.cached_property
    def allowed(self) -> AllowedLabels:
        """Which label may follow which."""
        return allowed_labels(self.labels, self.scheme)

    @functools.cached_property
    def ids(self) -> dict[str, int]:
        """The id of each label."""
        return {label: index for index, label in enumerate(self.labels)}

    def spans(self, labels: Sequence[str]) -> list[LabelledSpan]:
        """The entities of a sentence; with the scheme none, every word with its label."""
        if self.has_entities:
            return spans_of(labels)
        return [LabelledSpan(index, index + 1, label) for index, label in enumerate(labels)]

    def file_scheme(self, sentences: Sequence[Sequence[str]]) -> Scheme:
        """The scheme of a file's labels; the processor's if they name no entity of its types.

        Args: sentences: a list of labels [T] for each sentence, or another column of the file.

        Raises: ValueError for labels of these types in another spelling, such as B_PER.
        """
        types = {prefix_and_type(label)[1] for labels in sentences for label in labels}
        if not self.has_entities:
            return self.scheme
        if types.isdisjoint(self.types):
            label, right = misspelt_entities(sentences) or ("", "")
            if prefix_and_type(right)[1] in self.types:
                raise ValueError(f"{label} looks like the label of an entity; write it as {right}")
            return self.scheme
        scheme = find_scheme(sentences)
        return self.scheme if scheme == "none" else scheme

    def encode(self, sentence: TaggedSentence) -> dict[str, np.ndarray]:
        """The arrays of a sentence: those of `WordInputs.encode`, and `labels` [T] int32, 0 where unknown.

        Several parts have `upos/labels` and so on, with -1 for a label that is not in the training sentences.

        Raises: ValueError for a sentence that is too long for `inputs`.
        """
        before = sentence.before[-self.context :] if self.context else ()
        encoded = self.inputs.encode(sentence.words, before, sentence.after[: self.context])
        known = self.divide(sentence.labels or ())
        for part, one in self.by_part.items():
            labels = encoded[of_part(part, "labels")] = np.zeros(len(sentence.words), np.int32)
            if sentence.labels is not None:
                labels[:] = [one.ids.get(label, -1) if part else one.ids[label] for label in known[part]]
        return encoded

    def batch(self, encoded: Sequence[dict[str, np.ndarray]], size: int, length: int) -> dict[str, np.ndarray]:
        """Encoded sentences as a batch [B, T]; the last rows are padding.

        Returns: the arrays of `WordInputs.batch`; `labels` [B, T] int32, or those of each part, 0 at padding;
        `loss_mask` [B, T] bool, False for padding.
        """
        names = [of_part(part, "labels") for part in self.by_part]
        words = [{name: value for name, value in one.items() if name not in names} for one in encoded]
        batch = self.inputs.batch(words, size, length)
        labels = {name: np.zeros_like(batch["words"]) for name in names}
        for name, rows in labels.items():
            for row, one in zip(rows, encoded, strict=False):
                row[: len(one[name])] = one[name]
        return batch | labels | {"loss_mask": batch["word_mask"].copy()}

    def to_json(self) -> dict[str, Any]:
        """Its fields as JSON."""
        return {
            "inputs": self.inputs.to_json(),
            "labels": list(self.labels),
            "scheme": self.scheme,
            "unit": self.unit,
            "parts": {name: list(labels) for name, labels in self.parts},
            "context": self.context,
        }

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Self:
        """The processor whose `to_json` this is. Raises: ValueError naming the wrong field."""
        labels = tuple(list_of_strings(fields, "labels"))
        require_fields(fields, "tagger", inputs=dict, scheme=str, unit=str, parts=dict, context=int)
        parts = tuple((name, tuple(list_of_strings(fields["parts"], name))) for name in fields["parts"])
        inputs = WordInputs.from_json(fields["inputs"])
        return cls(inputs, labels, fields["scheme"], fields["unit"], parts, fields["context"])
