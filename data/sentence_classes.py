"""The data sets of sentence classification: MR, SST with five classes and with two, TREC's questions, and AFQMC.

Source: Kim 2014 for the files with a label and a tokenized sentence a line; Pang and Lee 2005 (MR); Socher et al. 2013
(SST); Li and Roth 2002 (TREC); the CLUE benchmark (AFQMC).
"""

from pathlib import Path
from typing import Literal, NamedTuple

from data import DataError
from data.table_rows import Columns, TableRow, read_rows

DataSet = Literal["mr", "sst5", "sst2", "trec", "afqmc"]


class Files(NamedTuple):
    """The files of a data set, in a folder of JAXNLP_DATA.

    Attributes:
      folder: its name.
      train: training file.
      validation: its own validation file; None = a part of the training file is held out.
      test: test file, without labels.
      columns: of JSON lines; None = each line has a label, a blank and a sentence.
    """

    folder: str
    train: str
    validation: str | None = None
    test: str | None = None
    columns: Columns | None = None


_PAIR = Columns(("sentence1", "sentence2"), "label")
FILES: dict[str, Files] = {
    "mr": Files("text_classification", "rt-polarity.all"),
    "sst5": Files("text_classification", "stsa.fine.train", "stsa.fine.dev"),
    "sst2": Files("text_classification", "stsa.binary.train", "stsa.binary.dev"),
    "trec": Files("text_classification", "TREC.train.all"),
    "afqmc": Files("afqmc", "train.json.gz", "dev.json", "test.json", _PAIR),
}
LATIN_1 = ("rt-polarity.all", "TREC.train.all")
"""Files in a single-byte encoding; the others are UTF-8."""


def read_data_set_file(name: str, path: Path, *, labelled: bool | None = True) -> list[TableRow]:
    """The rows of a file of a data set. Raises: FileNotFoundError, DataError naming the line that is something else."""
    columns = FILES[name].columns
    if columns is not None:
        return read_rows(path, columns, format="json", labelled=labelled)
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path.name} of {name} in {path.parent}")
    text = path.read_bytes().decode("latin-1" if path.name in LATIN_1 else "utf-8")
    rows: list[TableRow] = []
    for line, row in enumerate(text.removesuffix("\n").split("\n"), 1):  # splitlines() would also split at 0x85
        label, _, sentence = row.partition(" ")
        if not label or not sentence.strip():
            raise DataError(f"{path}, line {line}: expected a label, a blank and a sentence, got {row[:40]!r}")
        rows.append(TableRow(line, str(len(rows) + 1), (sentence.strip(),), label))
    return rows
