"""The birth-place assignment as text to text: pairs of a person's name with some words, and the fact after them.

Source: Roberts et al. 2020 (closed-book T5), with spans that are names and numbers (Guu et al. 2020); Allen-Zhu and Li
2023 for questions among the facts.
"""

import dataclasses
from typing import Any

import numpy as np

from data import Corpus, DataConfig, DataError, require_processor
from data.pipelines.corruption import answer_spans, recalled_facts, salient_spans, split_title
from data.readers.birth_places import FOLDER, NamesCorpus, NamesSource, read_names
from data.translation import SentencePairs
from jaxnlp.config import Count, Fraction, Natural, TokenCount, UserPath
from jaxnlp.text.characters import MASK
from jaxnlp.text.questions import Question
from jaxnlp.text.translation import SentencePair, TranslationProcessor


@dataclasses.dataclass(frozen=True)
class NamesTextToText(SentencePairs):
    """Facts of the documents and training questions: `Ann Lee. She was born in` and `Paris`, `Where was Ann Lee born?`
    and `Paris`. The splits validation, dev and test have questions."""

    vocabulary_size: TokenCount = 4_000
    """Maximum number of tokens in the vocabulary; with BPE and unigram, 260 of them are symbols and bytes."""
    lengths: tuple[int, ...] = (8, 12, 16, 24, 32, 64)
    """Lengths of batches in tokens, end symbol included; JAX compiles a program for each length."""
    source: NamesSource = "cs224n_a5"
    """The assignment's people, or invented people, which do not need files."""
    path: UserPath | None = None
    """Folder of the assignment's four files; None = in $JAXNLP_DATA."""
    held_out: Natural = 200
    """Number of training questions that are held out for validation; 0 = validate on the dev split."""
    facts_per_document: Count = 8
    """Number of facts from each document, the same ones in each epoch."""
    place_fraction: Fraction = 0.9
    """Share of the facts that are answers of training questions, if a document has any; others are any names and
    numbers."""
    question_fraction: Fraction = 0.15
    """Share of the training pairs that are training questions."""

    @property
    def needs(self) -> str:
        return "" if self.source == "invented" else FOLDER

    def check_after(self, earlier: DataConfig) -> None:
        """Raises DataError when validation has training questions of the earlier run, because it held out fewer."""
        if isinstance(earlier, NamesTextToText) and self.held_out > earlier.held_out:
            raise DataError(
                f"--data.held-out {self.held_out} includes questions that the earlier run was trained on: it held out "
                f"{earlier.held_out}; set --data.held-out to {earlier.held_out} or less"
            )

    def load(self, seed: int, processor: Any = None) -> Corpus:
        """Draws the pairs, which do not depend on the seed.

        Args:
          seed: decides the order of training, and BPE dropout.
          processor: the processor of an earlier run; None = the vocabulary is trained on the training pairs.

        Raises:
          FileNotFoundError: when a file does not exist.
          DataError: when a file is malformed, with its line; or when no training question is left.
        """
        names = read_names(self.source, self.path)
        kept, held_out = names.training_questions(self.held_out)
        generator = np.random.default_rng(0)
        train = self._facts(names, kept, generator)
        count = round(len(train) * self.question_fraction / max(1.0 - self.question_fraction, 0.01))
        train += [_asked(kept[index]) for index in generator.integers(len(kept), size=count)]
        saved = processor is not None
        held = {"validation": held_out or names.dev, "dev": names.dev, "test": names.test}
        return self.corpus(
            seed,
            require_processor(processor, TranslationProcessor) if saved else self.trained_processor(train),
            train,
            {name: ([*map(_asked, questions)], "") for name, questions in held.items()},
            saved=saved,
            file="",
            about=f"{self.source}: facts of {len(names.documents):,} documents, and {len(kept):,} questions: ",
        )

    def _facts(
        self, names: NamesCorpus, questions: tuple[Question, ...], generator: np.random.Generator
    ) -> list[SentencePair]:
        """Facts of the documents, each after the title and at most four words before it."""
        divided = [split_title(document) for document in names.documents]
        places = answer_spans([text for _, text in divided], [str(question.answer) for question in questions])
        pairs = list[SentencePair]()
        for (title, text), of_questions in zip(divided, places, strict=True):
            salient = salient_spans(text, title)
            for _ in range(self.facts_per_document):
                spans = of_questions if of_questions and generator.random() < self.place_fraction else salient
                if spans:
                    span = spans[generator.integers(len(spans))]
                    example, _ = recalled_facts(title, text, [span], 0, generator)
                    given, fact, _ = example.split(MASK)
                    pairs.append(SentencePair(given.strip(), fact))
        return pairs


def _asked(question: Question) -> SentencePair:
    return SentencePair(question.text, question.answer)
