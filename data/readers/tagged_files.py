"""Files of labelled sentences: columns (CoNLL files, files of characters), JSON of annotation tools, and CoNLL-U."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from data import DataError
from data.readers.annotations import annotated_sentences
from data.readers.raw_sentences import Counts, RawSentence
from jaxnlp.input_files.json_objects import is_json
from jaxnlp.input_files.text_files import UTF_8, read_text_file
from jaxnlp.text.columns import parse_columns, position
from jaxnlp.text.conllu import UNSPECIFIED, parse_conllu
from jaxnlp.text.tag_schemes import Scheme, belongs, check_label, find_scheme
from jaxnlp.text.tagger_processor import neighbours
from jaxnlp.text.word_split import Unit

FileFormat = Literal["auto", "columns", "json", "conllu"]
TagSet = Literal["upos", "xpos", "feats"]
"""Columns of CoNLL-U: Universal POS tags, the treebank's own tags, and morphological features."""
_CELLS = ("word", "token", "form", "text", "label", "tag", "ner_tag", "ner", "pos", "pos_tag", "upos", "xpos")
HEADER_CELLS = {*_CELLS, *(f"{cell}s" for cell in _CELLS)}
"""Names of columns, in lower case: a line of only these is a header."""
_WITH_INDEX = re.compile(r"(.+?)\d+$")


class TagColumns(NamedTuple):
    """The columns of the word and the label.

    Attributes:
      word: index of the column.
      label: index of the column; negative ones count from the end.
      has_index: whether each word is a character and its position in a segmented word, as in Weibo NER: 京1.
      tags: the column of the label in CoNLL-U; or several, as a tuple for each word.
    """

    word: int = 0
    label: int = -1
    has_index: bool = False
    tags: TagSet | tuple[TagSet, ...] = "upos"


class TaggedFile(NamedTuple):
    """The sentences of a file.

    Attributes:
      name: of the file, for messages.
      sentences: the sentences.
      counts: of skipped sentences.
      unlabelled: sentences without labels, where the others have labels and these are optional.
    """

    name: str
    sentences: list[RawSentence]
    counts: Counts
    unlabelled: Sequence[RawSentence] = ()

    @property
    def has_spans(self) -> bool:
        """Whether all sentences have positions of entities, which the reader writes as BIO."""
        return all(one.has_spans for one in self.sentences)


def tagged_format(path: Path, text: str) -> FileFormat:
    """The format of a file: CoNLL-U or JSON by the ending of its name, or JSON by its text; otherwise columns."""
    name = path.name.lower().removesuffix(".gz")
    if name.endswith(".conllu"):
        return "conllu"
    return "json" if name.endswith((".json", ".jsonl")) or is_json(text) else "columns"


def read_tagged(
    path: Path,
    *,
    format: FileFormat = "auto",
    columns: TagColumns = TagColumns(),  # noqa: B008  # a constant
    unit: Unit = "words",
    labelled: bool | None = True,
    encoding: str = UTF_8,
    context: int = 0,
) -> TaggedFile:
    """The sentences of a file.

    If some sentences have a label of each word, all others are counted, and skipped where labels are required.

    Args:
      path: the file; decompressed if its name ends in .gz.
      format: auto = see `tagged_format`.
      columns: the columns of a file of columns, and of CoNLL-U.
      unit: units into which the texts of JSON are split.
      labelled: whether labels are required; None = labels are optional.
      encoding: of the file.
      context: number of words of its neighbours on each side that a sentence has.

    Raises: FileNotFoundError, DataError when the file cannot be read or has no sentence.
    """
    text, counts = read_text_file(path, encoding), Counts()
    format = tagged_format(path, text) if format == "auto" else format
    if isinstance(columns.tags, tuple) and format != "conllu":
        tags = ", ".join(columns.tags)
        raise DataError(f"{path}: only CoNLL-U has {tags}; give a .conllu file, or set --data.format conllu")
    if format == "json":
        sentences = list(annotated_sentences(text, str(path), unit, counts))
    elif format == "conllu":
        sentences = list(_conllu_sentences(path, text, columns.tags, counts))
    else:
        sentences = list(_column_sentences(path, text, columns, labelled))
    if not sentences:
        raise DataError("; ".join([f"{path} has no sentences", *counts.notes()]))
    around = neighbours([one.words for one in sentences], context)
    pairs = zip(sentences, around, strict=True)
    sentences = [one._replace(before=before, after=after) for one, (before, after) in pairs]
    without = [one for one in sentences if one.labels is None]
    if len(without) < len(sentences):
        for one in without:
            where, fate = f"sentence {one.number}, line {one.line}", "skipped" if labelled else "not scored"
            counts.add_sentence(f"without a label of each word and {fate}", where)
        with_labels = [one for one in sentences if one.labels is not None]
        return TaggedFile(str(path), with_labels, counts, () if labelled else without)
    if without and labelled:
        commas = format == "columns" and all("," in word for word in without[0].words)
        hint = "; write tabs between the columns, not commas" if commas else ""
        if isinstance(columns.tags, tuple):
            hint = f"; every word needs {', '.join(columns.tags)}: choose those that the file has with --data.tags"
        where = f"{path}, line {without[0].line} (sentence {without[0].number})"
        raise DataError(f"{where}: expected a label for each word, got none{hint}")
    return TaggedFile(str(path), sentences, counts)


def scheme_of_file(file: TaggedFile, given: Literal["auto"] | Scheme, training: Scheme | None = None) -> Scheme:
    """The scheme of a file's labels; none if `training` is.

    Args:
      given: the scheme of labels in files; it does not apply to positions of entities. auto = found.
      training: the scheme of the training file, which is kept if it has all labels, or if no scheme has; None = not
        known.
    """
    if training == "none":
        return "none"
    if file.has_spans:
        return "bio"
    rows = [one.labels or () for one in file.sentences]
    found = find_scheme(rows) if given == "auto" else given
    if found == "none":
        found = training or "bio"  # so that the message names the first label that is not an entity label

    def fits(scheme: Scheme) -> bool:
        return all(belongs(label, scheme) for row in rows for label in row)

    return training if given == "auto" and training and (fits(training) or not fits(found)) else found


def check_labels(file: TaggedFile, scheme: Scheme) -> None:
    """Raises DataError naming the line of the first label that the scheme does not have."""
    for sentence in file.sentences:
        for index, label in enumerate(sentence.labels or ()):
            try:
                check_label(label, scheme)
            except ValueError as error:
                where = position(file.name, sentence.lines[index], sentence.number, index + 1)
                raise DataError(f"{where}: {error}") from error


def _column_sentences(path: Path, text: str, columns: TagColumns, labelled: bool | None) -> Iterator[RawSentence]:
    table = parse_columns(text, str(path))
    # If the only column or the last column has the words, the file has no labels.
    reads_labels = labelled is not False and columns.label not in (columns.word, columns.word - table.width)
    for sentence, words in zip(table.sentences, table.words(columns.word, str(path)), strict=True):
        for line, row in zip(sentence.lines, sentence.rows, strict=True):
            first = sentence.number == 1 and line == sentence.lines[0]  # elsewhere a single cell may be a word
            if (first or table.width > 1) and all(cell.strip("\ufeff").lower() in HEADER_CELLS for cell in row):
                raise DataError(f"{path}, line {line}: a header, {' '.join(row)}; remove this line")
        if columns.has_index:
            words = tuple(_WITH_INDEX.sub(r"\1", word) for word in words)
        labels = sentence.column(columns.label, str(path)) if reads_labels else None
        yield RawSentence(sentence.lines, sentence.number, words, labels)


def _conllu_sentences(
    path: Path, text: str, tags: TagSet | tuple[TagSet, ...], counts: Counts
) -> Iterator[RawSentence]:
    sentences = parse_conllu(text, str(path), trees=False)
    several = isinstance(tags, tuple)
    names: tuple[TagSet, ...] = tags if isinstance(tags, tuple) else (tags,)
    # A word without features has _, as all words of a file without this column.
    given = "feats" not in names or any(set(one.feats) - {UNSPECIFIED} for one in sentences)
    for number, sentence in enumerate(sentences, 1):
        if not sentence.words:
            counts.add_sentence("blank and skipped", sentence.where)
            continue
        found = [getattr(sentence, name) for name in names]
        labels = tuple(zip(*found, strict=True)) if several else found[0]
        lacking: list[str] = [
            name for one, name in zip(found, names, strict=True) if name != "feats" and UNSPECIFIED in one
        ]
        lacking += () if given else ("feats",)
        if lacking:
            labels = None
        if len(lacking) < len(names) and lacking:
            counts.add_sentence(
                f"without {', '.join(lacking)} of each word", f"sentence {number}, line {sentence.line}"
            )
        numbered = enumerate(sentence.lines, sentence.line)
        lines = tuple(line_number for line_number, line in numbered if line.split("\t")[0].isdecimal())
        yield RawSentence(lines, number, sentence.words, labels, sentence if several else None)
