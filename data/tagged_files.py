"""Files of labelled sentences: columns (CoNLL files, files of characters), JSON lines with spans, and CoNLL-U."""

import bisect
import itertools
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from data import DataError
from jaxnlp.input_files.text_files import read_text_file
from jaxnlp.text.columns import parse_columns, position
from jaxnlp.text.conllu import parse_conllu
from jaxnlp.text.tag_schemes import LabelledSpan, Scheme, check_label, labels_of_spans
from jaxnlp.text.word_split import PlacedWord, Unit, split_words

FileFormat = Literal["auto", "columns", "json", "conllu"]
SHOWN = 60
"""Maximum number of characters of an entity in a message."""
_WITH_INDEX = re.compile(r"(.+?)\d+$")


class Columns(NamedTuple):
    """The columns of the word and the label.

    Attributes:
      word: number of the column, from 0.
      label: number of the column; negative numbers count from the end.
      has_index: whether each word is a character and its position in a segmented word, as in Weibo NER: 京1.
    """

    word: int = 0
    label: int = -1
    has_index: bool = False


class RawSentence(NamedTuple):
    """A sentence of a file.

    Attributes:
      lines: the number of each word's line in the file, from 1 [T].
      number: number of the sentence, from 1.
      words: the words [T].
      labels: the labels in the scheme of the file [T]; None = the file has no labels.
    """

    lines: tuple[int, ...]
    number: int
    words: tuple[str, ...]
    labels: tuple[str, ...] | None

    @property
    def line(self) -> int:
        """The line on which the sentence begins."""
        return self.lines[0]


def format_of(path: Path) -> FileFormat:
    """The format of a file by the ending of its name: JSON lines, CoNLL-U, or columns for all other names."""
    name = path.name.lower().removesuffix(".gz")
    if name.endswith((".json", ".jsonl")):
        return "json"
    return "conllu" if name.endswith(".conllu") else "columns"


def read_tagged(
    path: Path,
    *,
    format: FileFormat = "auto",
    columns: Columns = Columns(),  # noqa: B008  # a constant
    unit: Unit = "words",
    labelled: bool | None = True,
) -> list[RawSentence]:
    """The sentences of a file.

    Args:
      path: the file; decompressed if its name ends in .gz.
      format: auto = by the ending of its name.
      columns: the columns of a file of columns.
      unit: units into which the texts of JSON lines are split.
      labelled: whether labels are required; None = labels are optional.

    Raises:
      FileNotFoundError, DataError: when the file cannot be read or has no sentence; the message names the line, the
        sentence, what was found and what was expected.
    """
    format = format_of(path) if format == "auto" else format
    text = read_text_file(path)
    if format == "json":
        found = list(_json_sentences(path, text, unit))
    elif format == "conllu":
        found = list(_conllu_sentences(path, text))
    else:
        found = list(_column_sentences(path, text, columns, labelled))
    if not found:
        raise DataError(f"{path} has no sentences")
    without = [one for one in found if one.labels is None]
    if without and labelled:
        raise DataError(
            f"{path}, line {without[0].line} (sentence {without[0].number}): expected a label for each word, got none"
        )
    if without and len(without) < len(found):
        raise DataError(
            f"{path}, line {without[0].line} (sentence {without[0].number}): has no labels, and other sentences have "
            "some; label all sentences or none"
        )
    return found


def check_labels(path: Path, sentences: Sequence[RawSentence], scheme: Scheme) -> None:
    """Raises DataError naming the line of the first label that the scheme does not have."""
    for sentence in sentences:
        for place, label in enumerate(sentence.labels or ()):
            try:
                check_label(label, scheme)
            except ValueError as error:
                where = position(str(path), sentence.lines[place], sentence.number, place + 1)
                raise DataError(f"{where}: {error}") from error


def _column_sentences(path: Path, text: str, columns: Columns, labelled: bool | None) -> Iterator[RawSentence]:
    try:
        found = parse_columns(text, str(path))
        # If the only column or the last column has the words, the file has no labels.
        reads_labels = labelled is not False and columns.label not in (columns.word, columns.word - found.width)
        for sentence in found.sentences:
            words = sentence.column(columns.word, str(path))
            if columns.has_index:
                words = tuple(_WITH_INDEX.sub(r"\1", word) for word in words)
            labels = sentence.column(columns.label, str(path)) if reads_labels else None
            yield RawSentence(sentence.lines, sentence.number, words, labels)
    except ValueError as error:
        raise DataError(str(error)) from error


def _conllu_sentences(path: Path, text: str) -> Iterator[RawSentence]:
    try:
        found = parse_conllu(text, str(path))
    except ValueError as error:
        raise DataError(str(error)) from error
    for number, sentence in enumerate(found, 1):
        labels = None if set(sentence.upos) == {"_"} else sentence.upos
        lines = (place for place, line in enumerate(sentence.lines, sentence.line) if line.split("\t")[0].isdecimal())
        yield RawSentence(tuple(lines), number, sentence.words, labels)


def _json_sentences(path: Path, text: str, unit: Unit) -> Iterator[RawSentence]:
    number = 0
    for line_number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        number += 1
        where = f"{path}, line {line_number} (sentence {number})"
        try:
            fields = json.loads(line)
        except json.JSONDecodeError as error:
            raise DataError(f"{where}: not JSON: {error.msg} at character {error.colno}") from error
        if not isinstance(fields, dict):
            raise DataError(f"{where}: expected an object, got {type(fields).__name__}")
        words, labels = _words_of_object(fields, unit, where)
        if not words:
            raise DataError(f"{where}: expected a sentence, got no words; remove the line")
        yield RawSentence((line_number,) * len(words), number, words, labels)


def _words_of_object(fields: dict[str, Any], unit: Unit, where: str) -> tuple[tuple[str, ...], tuple[str, ...] | None]:
    """The words and the labels of {"words": [...], "labels": [...]} or {"text": "...", "entities": [...]}."""
    if "words" in fields:
        words, labels = fields["words"], fields.get("labels")
        for name, value in (("words", words), ("labels", [] if labels is None else labels)):
            if not isinstance(value, list) or not all(isinstance(item, str) and item.strip() for item in value):
                raise DataError(f"{where}: {name} must be a list of strings that are not blank")
            # Files of predictions have a word a line, with tabs between the columns.
            broken = [item for item in value if any(character in item for character in "\t\n\r")]
            if broken:
                raise DataError(f"{where}: expected {name} without tabs and line breaks, got {broken[0]!r}")
        if labels is not None and len(labels) != len(words):
            raise DataError(f"{where}: expected a label for each of {len(words)} words, got {len(labels)} labels")
        return tuple(words), None if labels is None else tuple(labels)
    text, entities = fields.get("text"), fields.get("entities")
    if not isinstance(text, str):
        raise DataError(f"{where}: expected a string as text, or a list of words, got {', '.join(fields) or 'neither'}")
    spans = None if entities is None else [_span(entity, len(text), where) for entity in _list(entities, where)]
    placed = _split_at(split_words(text, unit), {place for span in spans or () for place in span[:2]})
    words = tuple(word for word, _, _ in placed)
    if spans is None:
        return words, None
    for start, stop, kind in spans or ():
        if not text[start:stop].strip():
            raise DataError(f"{where}: expected words from {start} to {stop}, the entity {kind}, got white space")
    starts = [word.start for word in placed]
    inner = [
        LabelledSpan(bisect.bisect_left(starts, span.start), bisect.bisect_left(starts, span.stop), span.type)
        for span in spans
    ]
    try:
        return words, tuple(labels_of_spans(inner, len(words), "bio"))
    except ValueError as error:
        raise DataError(f"{where}: {error}") from error


def _list(value: Any, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise DataError(f"{where}: entities must be a list, got {type(value).__name__}")
    return value


def _span(entity: Any, length: int, where: str) -> LabelledSpan:
    """An entity in characters, from {"start": 0, "end": 5, "type": "PER"} or [0, 5, "PER"]."""
    if isinstance(entity, dict):
        entity = [entity.get("start"), entity.get("end"), entity.get("type", entity.get("label"))]
    fits = isinstance(entity, list) and len(entity) == 3 and all(type(place) is int for place in entity[:2])
    if not fits or not isinstance(entity[2], str) or not entity[2]:
        raise DataError(f'{where}: expected {{"start": 0, "end": 5, "type": "PER"}}, got {str(entity)[:SHOWN]}')
    start, stop, kind = entity
    if not 0 <= start < stop <= length:
        raise DataError(
            f"{where}: expected 0 <= start < end <= {length}, the length of the text, got {start} and {stop}"
        )
    return LabelledSpan(start, stop, kind)


def _split_at(words: Sequence[PlacedWord], places: set[int]) -> list[PlacedWord]:
    """The words; a word is divided if an entity begins or ends inside it."""
    found = []
    for word, start, stop in words:
        cuts = [start, *sorted(place for place in places if start < place < stop), stop]
        found += [PlacedWord(word[a - start : b - start], a, b) for a, b in itertools.pairwise(cuts)]
    return found
