"""`jaxnlp predict` of models of text tasks."""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tyro

from jaxnlp.cli.inputs import blank_rows, chunks, one_line, report_blank, report_truncated, rows_of
from jaxnlp.cli.tables import TextColumns
from jaxnlp.tasks import Command, Trained
from jaxnlp.tasks.bert_verbs.encodings import TextOutputs, max_length_of
from jaxnlp.tasks.text_tasks.predictions import NO_PREDICTION, Prediction, most_likely, predict_texts, prediction_of
from jaxnlp.text.labels import Labels, number_of_texts
from jaxnlp.text.raw_texts import is_blank


@dataclasses.dataclass(frozen=True)
class Predict(Command):
    """Predicts the labels of texts, one line for each.

    A line has columns separated by tabs: the most probable class and its probability, or the similarity; then the text,
    or both texts, with spaces instead of line breaks. The columns of a blank text are empty, and a note on standard
    error counts blank texts.
    """

    texts: tyro.conf.Positional[tuple[str, ...]] = ()
    """Texts; none = those of the file, or of standard input."""
    pair: tuple[str, ...] = ()
    """The second text of each, for pairs."""
    file: Path | None = None
    """A UTF-8 file with one text a line, or two texts with a tab between them; or a table (.csv, .tsv, .jsonl) with the
    columns text and, for pairs, pair; - = standard input."""
    json: bool = False
    """Print a JSON object for each text and part, with the probabilities of all classes."""
    part: str | None = None
    """Part of the model, such as sst. None = all parts that fit the number of texts; with several parts, each line
    starts with the part's name."""

    def __call__(self, trained: Trained) -> None:
        """Prints the predictions. Those of the first texts are printed before the rest is read.

        Raises: ValueError, OSError for texts that are missing or cannot be read, and for parts that do not fit them.
        """
        parts = self._parts(trained)
        count = next(iter(parts.values())).texts
        total = 0
        truncated, blank = list[int](), list[int]()
        table = TextColumns.of_run(trained.config)
        for rows in chunks(rows_of(self.texts, self.pair, self.file, count=count, columns=table)):
            kept = [number for number, row in enumerate(rows) if not is_blank(row)]
            columns = list(zip(*(rows[number] for number in kept), strict=True))
            found = [predict_texts(trained, *columns, part=name) if kept else TextOutputs() for name in parts]
            places = dict(zip(kept, range(len(kept)), strict=True))
            for number, row in enumerate(rows):
                for (name, labels), output in zip(parts.items(), found, strict=True):
                    value = output.values[places[number]] if number in places else None
                    if self.json:
                        prediction = NO_PREDICTION if value is None else prediction_of(labels, value)
                        print(_json_line(name, labels, row, prediction))
                        continue
                    fields = [*_shown(labels, value), *map(one_line, row)]
                    print("\t".join([name, *fields] if len(parts) > 1 else fields))
            print(end="", flush=True)
            truncated += [total + kept[number] for number in found[0].truncated_rows]
            blank += blank_rows(rows, total)
            total += len(rows)
        report_truncated(truncated, total * count, max_length_of(trained))
        report_blank(blank, total, self.texts, self.file)

    def _parts(self, trained: Trained) -> dict[str, Labels]:
        """The chosen parts."""
        known = dict(trained.processor.parts)
        if self.part is not None:
            return {self.part: trained.processor.labels(self.part)}
        by_count = {count: {n: found for n, found in known.items() if found.texts == count} for count in (1, 2)}
        fitting = [count for count, found in by_count.items() if found]
        if self.texts or self.pair:
            count = 2 if self.pair else 1
            if count not in fitting:
                hint = "remove --pair" if count == 2 else "give the second texts with --pair"
                raise ValueError(f"{', '.join(known)}: takes {number_of_texts(fitting[0])}; {hint}")
            return by_count[count]
        if len(fitting) > 1:
            raise ValueError(
                f"{trained.name} has parts with one text, {', '.join(by_count[1])}, and with two, "
                f"{', '.join(by_count[2])}: choose one with --part"
            )
        return by_count[fitting[0]]


def _json_line(part: str, labels: Labels, row: Sequence[str], found: Prediction) -> str:
    answer: dict[str, Any] = dict(zip(("text", "pair"), row, strict=False)) | {"part": part}
    if labels.kind == "similarity":
        number = None if found.label is None else round(found.label, 6)
        return json.dumps(answer | {"number": number}, ensure_ascii=False)
    shares = {name: round(share, 6) for name, share in found.probabilities.items()}
    return json.dumps(answer | {"class": found.label, "probabilities": shares}, ensure_ascii=False)


def _shown(labels: Labels, value: np.ndarray | None) -> list[str]:
    if value is None:
        return [""] if labels.kind == "similarity" else ["", ""]
    if labels.kind == "similarity":
        return [f"{value:.2f}"]
    probability = max(value, 1 - value) if labels.kind == "paraphrase" else value.max()
    return [labels.names[int(most_likely(value, labels))], f"{probability:.2f}"]
