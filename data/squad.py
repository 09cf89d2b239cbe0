"""Questions about contexts, whose answers are spans of them: in SQuAD's format, or about invented people.

A file is one of these, as JSON or as JSON lines:

    {"data": [{"paragraphs": [{"context": "Ann ...", "qas": [{"id": "1", "question": "Who ...?", "answers": [...]}]}]}]}
    [{"id": "1", "context": "Ann ...", "question": "Who ...?", "answers": [...]}]

An answer is {"text": "Ann", "answer_start": 0}, or only its text; answers are a list of these, or {"text": ["Ann"],
"answer_start": [0]} as in the `datasets` library. [] and "is_impossible": true mean no answer. Without an `id`,
questions are numbered from 1.

Source: Rajpurkar et al. 2016 and 2018 for the format.
"""

import dataclasses
import functools
import itertools
import json
import logging
import math
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np

from data import Corpus, DataError, NumpyBatch, Split, errors_as, require_batch, require_processor
from data.invented_people import invent
from data.invented_questions import about_people
from data.pipelines.buckets import Buckets
from data.pipelines.endless import iterable, shuffled
from data.pipelines.fingerprints import fingerprint, vocabulary_text
from data.pipelines.lengths import multiples
from data.readers.file_options import SplitFiles
from data.readers.held_out import hold_out
from data.readers.repeated import repeated_notes
from jaxnlp.config import BatchSize, Count, Natural, UserPath, Within
from jaxnlp.corpus import SourceRows
from jaxnlp.input_files.json_objects import json_objects
from jaxnlp.input_files.text_files import has_surrogate, read_text_file, warn_of_skipped
from jaxnlp.text.blank_texts import is_blank
from jaxnlp.text.encoder_vocabulary import EncoderVocabulary, encoder_vocabulary
from jaxnlp.text.question_contexts import AnswerSpan, ContextQuestion, ContextWindow, QuestionProcessor
from jaxnlp.text.wordpiece import SPECIAL, WordPieceVocabulary

ABSENT_SHOWN = 3
"""Maximum number of questions that an error names whose answers do not occur in their contexts."""
_UNITS = (("utf-32-le", 4), ("utf-16-le", 2), ("utf-8", 1))
"""Units of answers' positions: characters, UTF-16 code units as in JavaScript, or bytes of UTF-8; an encoding, and the
bytes of a unit in it."""
_STARTS = ("answer_start", "start")
"""Keys of the position of an answer."""

_logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class QuestionContexts(SplitFiles):
    """Questions with a context each. A long context is read in overlapping windows. Answers are whole words.

    Batches have the arrays of `QuestionProcessor.batch`, and `span` [B, 2] int32: the first and the last token of the
    answer, or 0 twice if the window does not have it.
    """

    usual = ("source", "train", "batch_size")
    processor_fields = ("vocabulary_size",)

    source: Literal["invented_people", "files"] = "invented_people"
    """Birth places of invented people, which need no files; or your own files, in SQuAD's format or as JSON lines."""
    validation: UserPath | None = None
    """Your validation file; None = a tenth of the training contexts is held out."""
    people: Count = 1_000
    """Number of invented people with training questions; a fifth as many others have validation questions."""
    vocabulary_size: Annotated[int, Within(f"[{len(SPECIAL) + 1}, 10000001)")] = 8_000
    """Maximum number of tokens of a vocabulary trained on the training texts. A pretrained model has its own."""
    max_length: Annotated[int, Within("[8, 2147483648)")] = 256
    """Maximum length of a window in tokens: the question, a part of the context, and three special tokens."""
    overlap: Natural = 64
    """Number of tokens of the context that two consecutive windows share (the stride in other software); longer answers
    may be in none."""
    length_multiple: Count = 64
    """Batches have the length of their longest window, rounded up to a multiple of this; JAX compiles a program for
    each length."""
    evaluation_batch_size: BatchSize = 64
    """Number of windows in an evaluation step."""

    def __post_init__(self):
        super().__post_init__()
        self.only_if(self.source != "files", "data.source invented_people", "people")
        most = QuestionProcessor.max_overlap(self.max_length)
        if self.overlap > most:
            raise ValueError(
                f"data.overlap must be at most {most} for windows of {self.max_length} tokens, got {self.overlap}"
            )

    @property
    def needs(self) -> str:
        return "your questions" if self.source == "files" else ""

    def load(self, seed: int, processor: Any = None) -> Corpus:
        """Reads the questions; the splits are `validation` and, if there is a file, `test`.

        Args:
          seed: decides the order of training.
          processor: the tokenizer of a pretrained model, or the processor of an earlier run, whose tokenizer is used.

        Raises: FileNotFoundError, DataError.
        """
        files = self._invented() if self.source == "invented_people" else self._read()
        questions = {split: one.questions for split, one in files.items()}
        vocabulary = self._vocabulary(questions["train"], processor)
        processor = QuestionProcessor(vocabulary, self.max_length, self.overlap)
        splits = self._splits(questions, processor)
        train, (windows, buckets) = questions.pop("train"), splits.pop("train")
        require_batch(len(windows), self.batch_size, "windows")
        shuffled_windows = shuffled(windows, seed)
        counts = ", ".join(f"{len(rows):,} for {split}" for split, rows in {"training": train, **questions}.items())
        texts = {split: [(one.question, one.context) for one in rows] for split, rows in questions.items()}
        repeated = repeated_notes("questions", [(one.question, one.context) for one in train], texts)
        return Corpus(
            train=iterable(buckets.endless(shuffled_windows, self.batch_size, seed=seed + 1)),
            splits={split: self._split(files[split], *splits[split]) for split in questions},
            processor=processor,
            description="\n".join(
                [f"questions: {counts}; training windows: {len(windows):,}; {vocabulary.size:,} tokens", *repeated]
            ),
            fingerprint=fingerprint(
                vocabulary_text(vocabulary), repr((train, questions, self.max_length, self.overlap))
            ),
            of_each_shape=buckets.of_each_shape(windows, self.batch_size),
        )

    def read_file(self, path: Path, processor: Any) -> Split:
        file = read_questions(path, self.encoding)
        splits = self._splits({"": file.questions}, require_processor(processor, QuestionProcessor))
        return self._split(file, *splits[""])

    def _read(self) -> dict[str, "QuestionFile"]:
        paths = self.given_files()
        files = {
            split: read_questions(path, self.encoding, answered=None if split == "test" else True)
            for split, path in paths.items()
        }
        if self.validation is None:
            train = files["train"].questions
            contexts = list(dict.fromkeys(one.context for one in train))
            held_out = set(hold_out(contexts, str(paths["train"]), "contexts")[1])
            for split, held in (("train", False), ("validation", True)):
                files[split] = _file_of([one for one in train if (one.context in held_out) == held])
        return files

    def _invented(self) -> dict[str, "QuestionFile"]:
        people = invent(0, train=self.people, dev=-(-self.people // 5))
        return {
            "train": _file_of(about_people(people, "train", seed=0)),
            "validation": _file_of(about_people(people, "validation", seed=1)),
        }

    def _vocabulary(self, train: Sequence[ContextQuestion], given: Any) -> EncoderVocabulary:
        if given is not None:
            return require_processor(encoder_vocabulary(given), EncoderVocabulary)
        texts = dict.fromkeys(text for one in train for text in (one.question, one.context))
        with errors_as(DataError, f"--data.vocabulary-size {self.vocabulary_size}"):
            return WordPieceVocabulary.of_texts(list(texts), self.vocabulary_size)

    def _splits(
        self, questions: Mapping[str, Sequence[ContextQuestion]], processor: QuestionProcessor
    ) -> dict[str, tuple[list[ContextWindow], Buckets[ContextWindow]]]:
        """The windows of each split, and their batches."""
        windows = {split: processor.windows(rows) for split, rows in questions.items()}
        lengths = [_length(window) for of_split in windows.values() for window in of_split]
        chosen = multiples(lengths, self.max_length, self.length_multiple, few=self.few_lengths)
        return {
            split: (windows[split], Buckets(chosen, _length, functools.partial(_padded, rows, processor)))
            for split, rows in questions.items()
        }

    def _split(
        self, file: "QuestionFile", windows: Sequence[ContextWindow], buckets: Buckets[ContextWindow]
    ) -> Split[ContextQuestion]:
        """One pass over the windows; `rows` has the index of each one's window."""
        batches, rows = buckets.one_pass(windows, self.evaluation_batch_size)
        scored = all(one.answers is not None for one in file.questions)
        places = {name: index for index, name in enumerate(file.names)}
        source = SourceRows([places[one.name] for one in file.questions], file.names)
        return Split(batches, examples=tuple(file.questions), rows=rows, source=source, scored=scored)


def _length(window: ContextWindow) -> int:
    return len(window.tokens)


def _padded(
    questions: Sequence[ContextQuestion],
    processor: QuestionProcessor,
    windows: Sequence[ContextWindow],
    size: int,
    length: int,
) -> NumpyBatch:
    span = np.zeros((size, 2), np.int32)
    span[: len(windows)] = [window.tokens_of(questions[window.question_index].answers or ()) for window in windows]
    return processor.batch(windows, size, length) | {"span": span}


class QuestionFile(NamedTuple):
    """The questions of a file that are not blank, and the ids of all."""

    questions: list[ContextQuestion]
    names: Sequence[str]


def _file_of(questions: list[ContextQuestion]) -> QuestionFile:
    return QuestionFile(questions, [one.name for one in questions])


class _AbsentAnswerError(DataError):
    """An answer does not occur in its context."""


def read_questions(path: Path, encoding: str = "utf-8", *, answered: bool | None = None) -> QuestionFile:
    """Reads a file of questions; those with a blank question or context are skipped with a warning.

    Another warning counts questions with an uncertain position of the answer: it is not there, or it is not given, and
    the answer occurs several times, or only within longer words.

    Args:
      path: the file; see the docstring of this module.
      encoding: of the file.
      answered: whether questions must have answers; None = the first question decides.

    Raises: FileNotFoundError; DataError naming the question and its line, or its number in SQuAD's format; also for
    answers that do not occur in their contexts.
    """
    questions, skipped, names = list[ContextQuestion](), list[str](), dict[str, str]()
    uncertain, absent = list[str](), list[str]()
    for index, (place, fields) in enumerate(_questions(read_text_file(path, encoding), str(path)), 1):
        where = f"{path}, {place}"
        question, context = (_text(fields, name, where) for name in ("question", "context"))
        name = str(index if fields.get("id") is None else fields["id"])
        if name in names:
            what = "it has no id, and its number" if fields.get("id") is None else "its id"
            raise DataError(
                f"{where}: {what} {name!r} is that of {names[name]}, so a prediction would be lost; give it another id"
            )
        names[name] = place
        if is_blank((question,)) or is_blank((context,)):
            skipped.append(place)
            continue
        try:
            places = _answers(fields, context, where)
        except _AbsentAnswerError as error:
            absent.append(str(error))
            places = ()
        answers = None if places is None else tuple(span for span, _ in places)
        answered = answers is not None if answered is None else answered
        if answered != (answers is not None):
            what = "expected answers, got none" if answered else "it has answers, but the questions before it do not"
            raise DataError(f"{where}: {what}; write [] for a question whose context has no answer")
        questions.append(ContextQuestion(name, question, context, answers))
        if not all(certain for _, certain in places or ()):
            uncertain.append(where)
    if absent:
        count = f"{path}: answers of {len(absent)} of {len(names)} questions do not occur in the context, first "
        raise DataError(f"{count * (len(absent) > 1)}{'; '.join(absent[:ABSENT_SHOWN])}")
    warn_of_skipped(path, skipped, len(names), "questions", "blank, or with a blank context")
    if uncertain:
        _logger.warning(
            "%s: the place of an answer is not certain in %d of %d questions, first in %s: it is not at its "
            "answer_start, or has none and occurs several times, or only within a word; the nearest place is taken",
            *(path, len(uncertain), len(names), uncertain[0]),
        )
    if not questions:
        raise DataError(f"{path}: expected questions in SQuAD's format, or as JSON lines, got none")
    return QuestionFile(questions, [*names])


def _questions(text: str, file: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The place of each question in the file, for messages, and its fields. In SQuAD's format, it is a number."""
    number, last = itertools.count(1), 0
    for index, (line, value) in enumerate(json_objects(text, file), 1):
        if isinstance(value, dict) and "data" in value:
            rows = _of_articles(value, f"{file}, line {line}")
            found: Iterator[tuple[str, Any]] = ((f"question {next(number)}", row) for row in rows)
        else:
            found = iter([(f"line {line}" if line > last else f"line {line}, question {index}", value)])
        last = line
        for place, row in found:
            nested = [name for name in ("paragraphs", "qas") if isinstance(row, dict) and name in row]
            if nested and "question" not in row:
                raise DataError(
                    f"{file}, {place}: expected a question, got {nested[0]}; SQuAD's format is "
                    '{"data": [{"paragraphs": [{"context": "...", "qas": [...]}]}]}'
                )
            if not isinstance(row, dict):
                raise DataError(f"{file}, {place}: expected a question as a JSON object, got {json.dumps(row)[:40]}")
            yield place, row


def _of_articles(value: Mapping[str, Any], where: str) -> Iterator[Any]:
    for number, entry in enumerate(_list(value, "data", where), 1):
        if not isinstance(entry, dict) or "paragraphs" not in entry:
            yield entry  # a question
            continue
        article = f"{where}, article {number}"
        for index, paragraph in enumerate(_list(entry, "paragraphs", article), 1):
            for row in _list(paragraph, "qas", f"{article}, paragraph {index}"):
                yield {**row, "context": paragraph.get("context")} if isinstance(row, dict) else row


def _list(fields: Any, name: str, where: str) -> list[Any]:
    if not isinstance(fields, dict) or not isinstance(fields.get(name), list):
        raise DataError(f"{where}: expected an object with a list of {name}, got {json.dumps(fields)[:60]}")
    return fields[name]


def _text(fields: Mapping[str, Any], name: str, where: str) -> str:
    if not isinstance(fields.get(name), str):
        raise DataError(f"{where}: expected {name} as a text, got {json.dumps(fields.get(name))[:40]}")
    if has_surrogate(fields[name]):
        raise DataError(f"{where}: {name} has half of a surrogate pair, which is not a character; remove it")
    return fields[name]


def _answers(fields: Mapping[str, Any], context: str, where: str) -> tuple[tuple[AnswerSpan, bool], ...] | None:
    """The answers, and whether their positions are certain; None = not given."""
    names = [name for name in ("answers", "answer") if fields.get(name) is not None]
    if len(names) > 1:
        raise DataError(f"{where}: it has answer and answers; remove one of them")
    given = fields[names[0]] if names else None
    starts = fields.get("answer_start")
    if starts is not None and isinstance(given, str | list) and not any(isinstance(one, dict) for one in given):
        given = {"text": given, "answer_start": starts}
    if isinstance(given, dict) and isinstance(given.get("text"), list):
        texts = given["text"]
        starts = next((given[name] for name in _STARTS if given.get(name) is not None), [None] * len(texts))
        if not isinstance(starts, list) or len(starts) != len(texts):
            raise DataError(f"{where}: expected a list of {len(texts)} numbers as answer_start, got {starts!r:.40}")
        given = [{"text": text, "answer_start": start} for text, start in zip(texts, starts, strict=True)]
    impossible = fields.get("is_impossible")
    if isinstance(impossible, float) and math.isnan(impossible):  # as pandas writes a missing value
        impossible = None
    if impossible not in (None, True, False):
        raise DataError(f"{where}: expected is_impossible as true or false, got {json.dumps(impossible)[:40]}")
    if impossible and any(_has_text(one) for one in (given if isinstance(given, list) else [given])):
        raise DataError(f"{where}: is_impossible is true, but it has an answer; remove one of them")
    if impossible:
        return ()
    if given is None:
        return None
    return tuple(_span(one, context, where) for one in (given if isinstance(given, list) else [given]))


def _has_text(answer: Any) -> bool:
    text = answer.get("text") if isinstance(answer, dict) else answer
    return bool(text.strip() if isinstance(text, str) else text)


def _span(given: Any, context: str, where: str) -> tuple[AnswerSpan, bool]:
    """A stripped answer in its context, and whether its position is certain.

    It is at the given position, in any unit, or else at the nearest occurrence of its text, if possible not within a
    longer word.
    """
    fields = {"text": given} if isinstance(given, str) else given
    text, start = (None, None)
    if isinstance(fields, dict):
        text = fields.get("text")
        start = next((fields[name] for name in _STARTS if fields.get(name) is not None), None)
    if isinstance(start, float):  # as pandas writes a column of whole numbers in which some are missing
        start = None if math.isnan(start) else int(start) if start.is_integer() else start
    if not isinstance(text, str) or not text.strip() or not isinstance(start, int | None):
        expected = '{"text": "...", "answer_start": 0}'
        raise DataError(
            f"{where}: expected an answer as {expected}, got {json.dumps(given)[:60]}; write [] for a question whose "
            "context has no answer"
        )
    blanks = len(text) - len(text.lstrip())
    text = text.strip()
    places = () if start is None or start < 0 else (index + blanks for index in _characters(context, start))
    exact = next((index for index in places if context.startswith(text, index)), None)
    if exact is not None:
        return AnswerSpan(exact, exact + len(text), text), True
    start = max(0, start or 0) + blanks
    starts = [found.start() for found in re.finditer(f"(?={re.escape(text)})", context)]
    if not starts:
        same = unicodedata.normalize("NFC", text) in unicodedata.normalize("NFC", context)
        remedy = "its accents are written in another way there; write the file in NFC" if same else "copy it from there"
        raise _AbsentAnswerError(f"{where}: the answer {text!r} does not occur in the context; {remedy}")
    whole = [index for index in starts if not _cuts_a_word(context, index, index + len(text))]
    nearest = min(whole or starts, key=lambda index: abs(index - start))
    return AnswerSpan(nearest, nearest + len(text), text), len(whole) == 1


def _cuts_a_word(context: str, start: int, stop: int) -> bool:
    """Whether a span starts or ends within a word or a number, in scripts with upper and lower case."""

    def kind(one: str) -> str:
        return "digit" if one.isnumeric() else "letter" if one.isupper() or one.islower() else ""

    pairs = [context[max(0, index - 1) : index + 1] for index in (start, stop)]
    return any(len(pair) == 2 and kind(pair[0]) == kind(pair[1]) != "" for pair in pairs)


def _characters(context: str, position: int) -> Iterator[int]:
    """The characters that a position may mean, in characters, code units or bytes, with CRLF as two or as one."""
    yield position
    for line_end in ("\r\n", "\r"):
        for encoding, size in _UNITS:
            before = context.replace("\r\n", line_end).encode(encoding)[: size * position].decode(encoding, "ignore")
            yield len(before.replace(line_end, "\r\n"))
