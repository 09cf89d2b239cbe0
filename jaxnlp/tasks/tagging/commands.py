"""`jaxnlp predict` of taggers."""

import dataclasses
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tyro

from jaxnlp.corpus import errors_as
from jaxnlp.inference.arguments import one_or_many
from jaxnlp.input_files.json_objects import is_json
from jaxnlp.input_files.notes import report_blank, report_skipped
from jaxnlp.input_files.rows import TextColumns, chunks, name_of, position_of, read_text, rows_of
from jaxnlp.models.tagger import only_part
from jaxnlp.saving.atomic_files import PAGES, require_place, write_file, write_partial
from jaxnlp.tasks import Command, Trained
from jaxnlp.tasks.tagging.entities_page import Entity, render_page
from jaxnlp.tasks.tagging.inference import Labelled, label_sentences
from jaxnlp.text.blank_texts import blank_rows
from jaxnlp.text.columns import parse_columns, without_positions
from jaxnlp.text.conllu import TreeSentence, parse_conllu, written
from jaxnlp.text.raw_texts import one_line, require_sentences
from jaxnlp.text.tag_schemes import OUTSIDE, convert
from jaxnlp.text.tagger_processor import TaggerProcessor
from jaxnlp.text.word_split import PlacedWord, placed_words

_LABEL = re.compile(r"O|[BIELMSU]-\S+")
"""A label of an entity, in any scheme."""


@dataclasses.dataclass(frozen=True)
class Predict(Command):
    """Finds the entities in texts, or the labels of their words.

    A simple rule splits texts into words, or into characters if the model was trained on characters. Each text
    is printed, and below it a line for each entity: its type, its first character and the one after its last, its
    confidence and its words. The confidence is the lowest marginal probability of its words' labels.

    A model of several kinds of tags prints the tags of each word instead of a type.

    A blank text has no entities. A text with a word that is too long for the BERT is not labelled. Notes on standard
    error count both.
    """

    inputs: tyro.conf.Positional[tuple[str, ...]] = ()
    """Texts; none = those of the file, or of standard input."""
    file: Path | None = None
    """A file with one text a line; - = standard input."""
    json: bool = False
    """Print a JSON object for each text."""
    html: Path | None = None
    """Also write a page with coloured entities."""
    conll: Path | None = None
    """A file of columns, a word a line and an empty line after each sentence; - = standard input. Its lines are printed
    with the predicted label as a further column, which is O in lines between documents. Labels are in the scheme of the
    last column's labels, such as BIO, if it has any; otherwise in the training scheme."""
    word_column: int | None = None
    """Column of the word in the file of --conll, from 0; None = that of the training file."""
    conllu: Path | None = None
    """A CoNLL-U file; - = standard input. It is printed with the predicted tags in the columns UPOS, XPOS and FEATS;
    all else stays."""
    out: Path | None = None
    """Write the lines of --conll or --conllu to this file instead of printing them."""
    part: str | None = None
    """Predict only one of several kinds of tags, such as upos; None = all."""

    def further_files(self) -> tuple[Path | None, ...]:
        return (self.conll, self.conllu)

    def __call__(self, trained: Trained) -> None:
        """Prints or writes the predictions.

        Raises: ValueError, OSError for inputs that are missing or unreadable, and options that exclude each other.
        """
        require_place(self.out, ".conll", ".tsv", ".conllu", inputs=(self.conll, self.conllu))
        require_place(self.html, *PAGES, option="--html")
        one = trained if self.part is None else only_part(trained, self.part)
        if one.processor.parts and (self.conll is not None or self.html is not None):
            parts = ", ".join(one.processor.by_part)
            raise ValueError(f"--conll and --html show one kind of tags: choose one with --part: {parts}")
        if (self.word_column is not None and self.conll is None) or (
            self.out is not None and self.conll is self.conllu
        ):
            raise ValueError("--out and --word-column apply only to --conll, and --out to --conllu")
        if self.conll is not None or self.conllu is not None:
            if self.inputs or self.file is not None or self.json or self.html is not None:
                raise ValueError("--conll excludes texts, --file, --json and --html; so does --conllu")
            if self.conll is not None and self.conllu is not None:
                raise ValueError("give --conll or --conllu, not both")
            text = self._with_labels(one, self.conll) if self.conll is not None else self._with_tags(trained)
            if self.out is None:
                print(text, end="")
            else:
                write_file(self.out, text.encode())
                print(self.out)
            return
        trained = one
        texts, entities = list[str](), list[list[Entity]]()
        count, skipped, blank = 0, list[str](), list[int]()
        try:
            for chunk in chunks(
                rows_of(self.inputs, (), self.file, count=1, columns=TextColumns.of_run(trained.config))
            ):
                if not count and not self.inputs:
                    _refuse_columns(trained.processor, [text for (text,) in chunk], self.file)
                blank += blank_rows(chunk, count)
                for (text,), result in zip(chunk, entities_or_problems(trained, [t for (t,) in chunk]), strict=True):
                    count += 1
                    if isinstance(result, str):
                        skipped.append(f"{position_of(self.inputs, self.file, count)}: {result}")
                    if self.html is not None:
                        texts.append(text)
                        entities.append([] if isinstance(result, str) else result)
                    print(_json_line(trained.processor, text, result) if self.json else _lines(text, result))
                print(end="", flush=True)
        except BaseException:
            if self.html is not None and texts:
                write_partial(self.html, _page(trained, texts, entities), "texts")
            raise
        if skipped and count == len(skipped):
            raise ValueError(skipped[0])
        report_skipped(skipped, count, "texts", "labels")
        report_blank(blank, count, self.inputs, self.file)
        if self.html is not None:
            write_file(self.html, _page(trained, texts, entities))
            print(f"entities in {self.html}", file=sys.stderr)

    def _with_tags(self, trained: Trained) -> str:
        """The text of the CoNLL-U file with predicted tags."""
        assert self.conllu is not None
        processor: TaggerProcessor = trained.processor
        if not processor.parts:
            raise ValueError("--conllu needs a model of several kinds of tags, or of feats; give --conll for this one")
        columns = TextColumns.of_run(trained.config)
        sentences = parse_conllu(read_text(self.conllu, columns), name_of(self.conllu), trees=False)
        with_words = [one for one in sentences if one.words]
        for one in with_words:
            if problem := processor.inputs.problem(one.words):
                raise ValueError(f"{one.where}: {problem}")
        labelled = iter(label_sentences(trained, [one.words for one in with_words], of_one_text=True))
        tagged = list[TreeSentence]()
        for one in sentences:
            tags = processor.divide(next(labelled).labels) if one.words else {}
            chosen = {name: column for name, column in tags.items() if self.part in (None, name)}
            tagged.append(one.with_tags(chosen))
        return written(tagged)

    def _with_labels(self, trained: Trained, path: Path) -> str:
        """The lines of the file of columns with a further column."""
        file = name_of(path)
        text = read_text(path, TextColumns.of_run(trained.config))
        if is_json(text):
            raise ValueError(
                f"{file} is JSON; --conll reads a word a line, with an empty line after each sentence; jaxnlp evaluate "
                f"RUN --file {file} --predictions OUT reads JSON, too"
            )
        columns = parse_columns(text, file)
        of_training = (trained.config or {}).get("data", {}).get("word_column", 0)
        words = columns.words(of_training if self.word_column is None else self.word_column, file)
        if trained.processor.unit == "characters":
            words = without_positions(words)
        for sentence, row in zip(columns.sentences, words, strict=True):
            if problem := trained.processor.inputs.problem(row):
                raise ValueError(f"{file}, line {sentence.lines[0]} (sentence {sentence.number}): {problem}")
        with errors_as(ValueError, f"{file}, last column"):
            scheme = trained.processor.file_scheme([[row[-1] for row in one.rows] for one in columns.sentences])
        labelled = label_sentences(trained, words, of_one_text=True)
        labels = [one.labels if scheme == trained.processor.scheme else convert(one.labels, scheme) for one in labelled]
        return columns.with_column(labels, OUTSIDE if trained.processor.has_entities else "_")


def _refuse_columns(processor: TaggerProcessor, lines: Sequence[str], file: Path | None) -> None:
    """Raises ValueError for lines of words, each with a label of an entity in the last column."""
    rows = [line.split() for line in lines if line.strip()]
    if processor.has_entities and len(rows) > 1 and all(len(row) > 1 and _LABEL.fullmatch(row[-1]) for row in rows):
        name = file or Path("-")
        raise ValueError(
            f"{name_of(name)}: each line is a word with a label in the last column, not a text; give --conll {name}"
        )


@one_or_many
def tag(trained: Trained, texts: Sequence[str | Sequence[str]]) -> list[list[Entity]]:
    """The entities in each text, or of one text, or the labels of its words; several kinds of tags are a dict, such as
    {"upos": "NOUN", "xpos": "NN"}. A blank text has none.

    Args:
      texts: one text, or a list of N, which may have lists of words: `[["Ann", "is", "here"]]`. Positions are then
        indices of words, and blank words have no labels.

    Raises: ValueError naming the text, for a word that is too long for the BERT.
    """
    results = list[list[Entity]]()
    for number, one in enumerate(entities_or_problems(trained, require_sentences(texts)), 1):
        if isinstance(one, str):
            raise ValueError(f"text {number}: {one}")
        results.append(one)
    return results


def entities_or_problems(trained: Trained, texts: Sequence[str | Sequence[str]]) -> list[list[Entity] | str]:
    """The entities of each text, or the reason why the text cannot be labelled. A blank text has no entities."""
    processor: TaggerProcessor = trained.processor
    placed = [placed_words(text, processor.unit) for text in texts]
    words = [[word.word for word in row] for row in placed]
    results: list[list[Entity] | str] = [processor.inputs.problem(row) or [] for row in words]
    chosen = [index for index, row in enumerate(words) if row and not results[index]]
    for index, labelled in zip(chosen, label_sentences(trained, [words[index] for index in chosen]), strict=True):
        results[index] = entities_of(processor, texts[index], placed[index], labelled)
    return results


def entities_of(
    processor: TaggerProcessor, text: str | Sequence[str], words: Sequence[PlacedWord], labelled: Labelled
) -> list[Entity]:
    """The entities of a text, or of a list of words; for labels without entities its words with their labels."""
    between = "" if processor.unit == "characters" else " "
    entities = list[Entity]()
    for first, after, kind in processor.spans(labelled.labels):
        start, stop = words[first].start, words[after - 1].stop
        confidence = min(labelled.confidence[first:after])
        joined = between.join(word.word for word in words[first:after])
        inside = text[start:stop] if isinstance(text, str) else joined
        shown = dict(zip(processor.by_part, kind, strict=True)) if processor.parts else kind
        entities.append(Entity(start, stop, shown, confidence, inside))
    return entities


def _lines(text: str, entities: Sequence[Entity] | str) -> str:
    if isinstance(entities, str):
        return f"{one_line(text)}\n  not labelled: {entities}"
    rows = [f"  {_type(one)}\t{one.start}-{one.stop}\t{one.confidence:.2f}\t{one_line(one.text)}" for one in entities]
    return "\n".join([one_line(text), *rows])


def _type(entity: Entity) -> str:
    return "\t".join(entity.type.values()) if isinstance(entity.type, dict) else entity.type


def _json_line(processor: TaggerProcessor, text: str, entities: Sequence[Entity] | str) -> str:
    rows: list[dict[str, Any]] | None = None
    if not isinstance(entities, str):
        rows = [
            {
                "type": one.type,
                "start": one.start,
                "end": one.stop,
                "text": one.text,
                "confidence": round(one.confidence, 6),
            }
            for one in entities
        ]
    return json.dumps({"text": text, "entities" if processor.has_entities else "words": rows}, ensure_ascii=False)


def _page(trained: Trained, texts: Sequence[str], entities: Sequence[Sequence[Entity]]) -> bytes:
    return render_page(texts, entities, trained.processor.types, trained.name).encode()
