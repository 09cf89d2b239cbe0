"""The known data sets of labelled sentences: MR, SST, TREC's questions, AFQMC, and those of CS224N's default project.

Source: Kim 2014 for the files with a label and a tokenized sentence a line; Pang and Lee 2005 (MR); Socher et al. 2013
(SST); Li and Roth 2002 (TREC); the CLUE benchmark (AFQMC); CS224N, default final project (minBERT): SST, counterfactual
IMDb reviews, Quora's question pairs, and SemEval's semantic textual similarity.
"""

from pathlib import Path
from typing import Literal, NamedTuple

from data import DataError
from jaxnlp.corpus import SourceRows
from jaxnlp.input_files.tables import (
    Columns,
    Dialect,
    TableFormat,
    TableRow,
    labelled_rows,
    read_table,
    rows_with_texts,
)
from jaxnlp.input_files.text_files import UTF_8, decoded, is_blank, line_feeds, warn_of_skipped
from jaxnlp.targets import Number, OneClass, Targets

LabelledName = Literal[
    "mr", "sst5", "sst2", "trec", "afqmc", "cs224n_sst", "cs224n_cfimdb", "cs224n_quora", "cs224n_sts"
]


class LabelledFiles(NamedTuple):
    """The files of a data set, in a folder of JAXNLP_DATA. Each may be compressed by gzip, with the suffix .gz.

    Attributes:
      folder: its name.
      train: training file.
      validation: validation file; None = a part of the training file is held out.
      test: test file, with or without labels, which may be missing.
      columns: of a table; None = each line has a label, a blank and a sentence.
      format: of a table.
      targets: the targets; None = the classes in the training file.
      training_rows: number of rows of the validation file to train on if the training file does not exist; the others
        are for validation. None = the training file is required.
    """

    folder: str
    train: str
    validation: str | None = None
    test: str | None = None
    columns: Columns | None = None
    format: TableFormat = "json"
    targets: Targets | None = None
    training_rows: int | None = None


_TWO = ("sentence1", "sentence2")
_SENTENCE = Columns(("sentence",), "sentiment", "id")
LABELLED: dict[str, LabelledFiles] = {
    "mr": LabelledFiles("text_classification", "rt-polarity.all"),
    "sst5": LabelledFiles("text_classification", "stsa.fine.train", "stsa.fine.dev"),
    "sst2": LabelledFiles("text_classification", "stsa.binary.train", "stsa.binary.dev"),
    "trec": LabelledFiles("text_classification", "TREC.train.all"),
    "afqmc": LabelledFiles("afqmc", "train.json", "dev.json", "test.json", Columns(_TWO, "label")),
    "cs224n_sst": LabelledFiles(
        "cs224n_minbert",
        *("ids-sst-train.csv", "ids-sst-dev.csv", "ids-sst-test-student.csv"),
        columns=_SENTENCE,
        format="tsv",
        targets=OneClass(("0", "1", "2", "3", "4")),
    ),
    "cs224n_cfimdb": LabelledFiles(
        "cs224n_minbert",
        *("ids-cfimdb-train.csv", "ids-cfimdb-dev.csv", "ids-cfimdb-test-student.csv"),
        columns=_SENTENCE,
        format="tsv",
        targets=OneClass(("0", "1")),
    ),
    "cs224n_quora": LabelledFiles(
        "cs224n_minbert",
        *("quora-train.csv", "quora-dev.csv", "quora-test-student.csv"),
        columns=Columns(_TWO, "is_duplicate", "id"),
        format="tsv",
        targets=OneClass(("0", "1")),
        training_rows=16_000,
    ),
    "cs224n_sts": LabelledFiles(
        "cs224n_minbert",
        *("sts-train.csv", "sts-dev.csv", "sts-test-student.csv"),
        columns=Columns(_TWO, "similarity", "id"),
        format="tsv",
        targets=Number(0.0, 5.0),
    ),
}
LATIN_1 = ("rt-polarity.all", "TREC.train.all")
"""Files in a single-byte encoding; the others are UTF-8."""


def read_data_set(name: str, folder: Path) -> dict[str, tuple[Path, list[TableRow]]]:
    """The rows of `train`, and of `validation` and `test` if their files exist, each with its file.

    Rows without a label are removed, with a warning.

    Raises: FileNotFoundError for missing files; DataError naming a malformed line, or for too few rows.
    """
    files = LABELLED[name]
    named = {"train": files.train, "validation": files.validation, "test": files.test}
    paths = {split: find_file(folder, file) for split, file in named.items() if file is not None}
    optional = {"test"} if files.training_rows is None else {"test", "train"}
    missing = [path.name for split, path in paths.items() if split not in optional and not path.is_file()]
    if missing:
        raise FileNotFoundError(
            f"{folder} does not have {' and '.join(missing)} for {name}, with or without .gz; give the folder of its "
            "files with --data.path"
        )
    splits = {
        split: (path, read_data_set_file(name, path, labelled=None if split == "test" else True)[0])
        for split, path in paths.items()
        if path.is_file()
    }
    if "train" in splits:
        return splits
    path, rows = splits["validation"]
    count = files.training_rows
    assert count is not None
    if len(rows) <= count:
        raise DataError(
            f"{path} has {len(rows)} rows; without {files.train} it needs more than {count}: the first {count} are "
            "for training, the others for validation"
        )
    return {"train": (path, rows[:count])} | splits | {"validation": (path, rows[count:])}


def find_file(folder: Path, name: str) -> Path:
    """The file in a folder, or its compressed form if only that exists."""
    path = folder / name
    compressed = path.with_name(f"{path.name}.gz")
    return compressed if compressed.is_file() and not path.is_file() else path


def read_data_set_file(name: str, path: Path, *, labelled: bool | None = None) -> tuple[list[TableRow], SourceRows]:
    """The rows of a file of a data set, and all its rows. Rows without a text or a label are removed, with a warning.

    Args:
      name: of the data set.
      path: the file.
      labelled: whether a table's labels are required; None = read if they exist.

    Raises: FileNotFoundError, DataError naming a malformed line.
    """
    files = LABELLED[name]
    if files.columns is not None:
        table = read_table(path, files.columns, dialect=Dialect(files.format), labelled=labelled)
        rows = labelled_rows(path, rows_with_texts(path, table.rows), files.columns.label)
        return rows, table.source(rows)
    if not path.is_file():
        raise FileNotFoundError(f"the file {path.name} of {name} does not exist in {path.parent}")
    encoding = "latin-1" if path.name in LATIN_1 else UTF_8
    text = line_feeds(decoded(path.read_bytes(), path, encoding, option=False), old=False)
    lines = text.removesuffix("\n").split("\n")  # splitlines() would also split at 0x85
    kept: list[TableRow] = []
    for line, row in enumerate(lines, 1):
        label, _, sentence = row.strip().partition(" ")
        if not is_blank(row) and is_blank(sentence):
            raise DataError(f"{path}, line {line}: expected a label, a space and a sentence, got {row[:40]!r}")
        if not is_blank(row):
            kept.append(TableRow(line, line - 1, str(line), (sentence.strip(),), label))
    blank = sorted(set(range(1, len(lines) + 1)) - {row.line for row in kept})
    warn_of_skipped(path, blank, len(lines), "lines", "without text")
    names = [str(line) for line in range(1, len(lines) + 1)]
    return kept, SourceRows([row.position for row in kept], names)
