"""The birth-place assignment: documents about people, and questions about them.

Source: CS224N assignment 5. Allen-Zhu and Li 2023 (Physics of Language Models, 3.1) for questions within pretraining.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from data import Corpus, DataConfig, DataError, Split, require_processor
from data.pipelines.corruption import answer_spans, recalled_facts, salient_spans, span_corruption, split_title
from data.pipelines.endless import Examples, iterable, shuffled
from data.questions import Questions, ScoredText, question_split
from data.readers.birth_places import FOLDER, NamesCorpus, NamesSource, read_names
from data.readers.repeated import repeated_notes
from jaxnlp.config import Count, Fraction, UserPath
from jaxnlp.text.characters import CharacterVocabulary
from jaxnlp.text.questions import Question


@dataclasses.dataclass(frozen=True)
class _NamesConfig(Questions):
    source: NamesSource = "cs224n_a5"
    """The assignment's people, or invented people, which do not need files."""
    path: UserPath | None = None
    """Folder of the assignment's four files; None = in $JAXNLP_DATA."""

    @property
    def needs(self) -> str:
        return "" if self.source == "invented" else FOLDER

    @property
    def learns_questions(self) -> bool:
        """Whether the training examples include questions."""
        return True

    def check_after(self, earlier: DataConfig) -> None:
        """Raises DataError when validation has training questions of the earlier run, because it held out fewer."""
        if isinstance(earlier, _NamesConfig) and earlier.learns_questions and self.held_out > earlier.held_out:
            raise DataError(
                f"--data.held-out {self.held_out} includes questions that the earlier run was trained on: it held out "
                f"{earlier.held_out}; set --data.held-out to {earlier.held_out} or less"
            )

    def vocabulary_of(self, names: NamesCorpus, processor: Any) -> CharacterVocabulary:
        """The processor as a vocabulary, or the vocabulary of the documents and questions."""
        return names.vocabulary if processor is None else require_processor(processor, CharacterVocabulary)

    def corpus(
        self,
        names: NamesCorpus,
        vocabulary: CharacterVocabulary,
        train: Examples,
        *,
        seed: int,
        known: Sequence[ScoredText] | None,
        description: str,
        validation: Sequence[ScoredText] = (),
    ) -> Corpus:
        """The corpus of a run, with the splits train, validation, dev and test.

        Args:
          names: documents and questions.
          vocabulary: of their characters.
          train: the training examples.
          seed: decides the order of batches.
          known: all training examples, if each epoch has the same; None = they differ, with lengths up to
            `sequence_length`.
          description: one line for the user.
          validation: the examples of the split validation; () = the held-out questions.
        """
        kept, held_out = names.training_questions(self.held_out)
        questions = {"train": kept, "validation": held_out or names.dev, "dev": names.dev, "test": names.test}
        texts = {name: [self.readable_text(one, vocabulary) for one in of] for name, of in questions.items()}
        lengths = [text.positions for of_split in (known or (), validation, *texts.values()) for text in of_split]
        buckets = self.buckets(lengths if known is not None else [*lengths, self.sequence_length], vocabulary)
        splits = {
            name: question_split(buckets, of, texts[name], self.evaluation_batch_size) for name, of in questions.items()
        }
        if validation:
            splits["validation"] = Split(buckets.one_pass(validation, self.evaluation_batch_size)[0])
        return Corpus(
            train=iterable(buckets.endless(train, self.batch_size, seed=seed)),
            splits=splits,
            processor=vocabulary,
            description=description,
            fingerprint=names.fingerprint,
            of_each_shape=(
                buckets.of_each_length(self.batch_size)
                if known is None
                else buckets.of_each_shape(known, self.batch_size)
            ),
        )


@dataclasses.dataclass(frozen=True)
class NamesQuestions(_NamesConfig):
    """Fine-tuning: the training questions, scored on their answers."""

    def load(self, seed: int, processor: Any = None) -> Corpus:
        """Reads the questions; without a processor, the vocabulary is that of pretraining on the documents."""
        names = read_names(self.source, self.path)
        vocabulary = self.vocabulary_of(names, processor)
        kept, held_out = names.training_questions(self.held_out)
        texts = [self.readable_text(question, vocabulary) for question in kept]
        asked = {name: [(one.text,) for one in of] for name, of in {"held-out": held_out, "dev": names.dev}.items()}
        notes = repeated_notes("questions", [(question.text,) for question in kept], asked)
        return self.corpus(
            names,
            vocabulary,
            shuffled(texts, seed),
            seed=seed,
            known=texts,
            description=(
                f"{self.source}: {len(kept):,} questions for training, {len(held_out):,} held out, "
                f"{len(names.dev):,} dev, {len(names.test):,} test; {vocabulary.size} distinct characters"
                + "".join(f"\n{note}" for note in notes)
            ),
        )


@dataclasses.dataclass(frozen=True)
class NamesPretraining(_NamesConfig):
    """Pretraining: the documents, corrupted differently in each epoch, optionally mixed with training questions."""

    corruption: Literal["uniform", "facts"] = "uniform"
    """Predicted spans of a document: a random span, as in the assignment (uniform); or names, numbers and places, each
    after the title and a few previous words (facts)."""
    place_fraction: Fraction = 0.0
    """For facts: share of the examples that predict only answers of training questions, if their document has any."""
    question_fraction: Fraction = 0.0
    """Share of the examples that are training questions."""
    facts_length: Count = 72
    """For facts: maximum length of an example of several facts, in characters."""
    max_left_padding: int = 0
    """Maximum number of PADs before an example; the number is random, so that names occur at any position."""

    def __post_init__(self):
        super().__post_init__()
        if not 0 <= self.max_left_padding < self.sequence_length:
            raise ValueError(
                f"data.max_left_padding must be in [0, {self.sequence_length}), got {self.max_left_padding}"
            )
        self.only_if(self.corruption == "facts", "data.corruption facts", "place_fraction", "facts_length")

    @property
    def learns_questions(self) -> bool:
        return self.question_fraction > 0.0

    def load(self, seed: int, processor: Any = None) -> Corpus:
        """Reads the documents and the questions.

        With questions in training, the validation split has the held-out questions. Otherwise it has the documents,
        corrupted once, to measure memorisation.
        """
        names = read_names(self.source, self.path)
        vocabulary = self.vocabulary_of(names, processor)
        kept, _ = names.training_questions(self.held_out)
        draw = _PretrainingText(self, names.documents, kept)
        order = range(len(names.documents))
        corrupted = [draw(index, np.random.default_rng((0, index))) for index in order]
        return self.corpus(
            names,
            vocabulary,
            shuffled(order, seed, draw),
            seed=seed,
            known=None,
            validation=() if self.question_fraction else corrupted,
            description=(
                f"{self.source}: {len(names.documents):,} documents, "
                f"{sum(map(len, names.documents)):,} characters, {vocabulary.size} distinct"
                + (f"; {len(kept):,} training questions among them" if self.question_fraction else "")
            ),
        )


class _PretrainingText:
    """Makes texts of documents and questions; a text is a function of its index and a random generator."""

    def __init__(self, config: NamesPretraining, documents: Sequence[str], questions: Sequence[Question]):
        self._config = config
        self._documents = documents
        self._questions = questions
        if config.corruption == "facts":
            self._divided = [split_title(document) for document in documents]
            self._spans = [salient_spans(text, title) for title, text in self._divided]
            self._places = answer_spans([text for _, text in self._divided], [str(one.answer) for one in questions])

    def __call__(self, index: int, rng: np.random.Generator) -> ScoredText:
        config = self._config
        if rng.random() < config.question_fraction:
            text = config.question_text(self._questions[int(rng.integers(len(self._questions)))])
        else:
            text = self._corrupted(index, rng)
        free = min(config.max_left_padding, config.sequence_length - text.positions)
        return text._replace(left_padding=int(rng.integers(0, free + 1))) if config.max_left_padding else text

    def _corrupted(self, index: int, rng: np.random.Generator) -> ScoredText:
        config = self._config
        if config.corruption == "facts" and self._spans[index]:
            spans = self._spans[index]
            if self._places[index] and rng.random() < config.place_fraction:
                spans = self._places[index]
            text, given = recalled_facts(*self._divided[index], spans, config.facts_length, rng)
            return ScoredText(text[: config.sequence_length + 1], given)
        return ScoredText(span_corruption(self._documents[index], config.sequence_length, rng))
