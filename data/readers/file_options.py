"""Options of data sets that read the user's files: the files of the splits, and the format of text files and tables."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from data import DataConfig, DataError
from jaxnlp.config import UserPath
from jaxnlp.input_files.delimited import Quotes, checked_delimiter
from jaxnlp.input_files.tables import Dialect
from jaxnlp.input_files.text_files import UTF_8, check_encoding


@dataclasses.dataclass(frozen=True)
class TextFiles(DataConfig):
    """The base of data sets that read text files."""

    encoding: str = UTF_8
    """Encoding of your files: utf-8, cp1252 (Windows), latin1, utf-16, or another one in Python."""

    def __post_init__(self):
        super().__post_init__()
        check_encoding(self.encoding, self.full_name("encoding"))

    def format_only_if(self, is_own: bool, what: str) -> None:
        """Refuses options of the files' format unless the files are the user's own, `is_own`. Args: what: the configs
        with such files."""
        options = {field for base in (TextFiles, TableFiles) for field in base.__annotations__}
        self.only_if(is_own, what, *(field.name for field in dataclasses.fields(self) if field.name in options))


@dataclasses.dataclass(frozen=True)
class TableFiles(TextFiles):
    """The base of data sets that read tables."""

    delimiter: str | None = None
    """Character between the fields of your tables, such as ";" or "|"; None = a comma in .csv and a tab in .tsv and
    .txt, or, if columns are missing, the one that gives them in the first line."""
    quotes: Quotes = "auto"
    """Quotes in your tables: csv = they enclose fields; backslash = as csv, with a backslash before quotes in fields,
    as in Spark and MySQL; none = they are characters; auto = csv, but if they would enclose whole rows, none in tables
    with tabs, and an error in others."""

    def __post_init__(self):
        super().__post_init__()
        object.__setattr__(self, "delimiter", checked_delimiter(self.delimiter, self.full_name("delimiter")))

    def in_format(self, given: Mapping[str, Any]) -> Self:
        return dataclasses.replace(self, **given)  # a known data set has tables of one format

    @property
    def dialect(self) -> Dialect:
        """The dialect of the tables."""
        return Dialect(None, self.delimiter, self.quotes, self.encoding)


@dataclasses.dataclass(frozen=True)
class SplitFiles(TextFiles):
    """The base of data sets whose source may be the user's files, one for each split."""

    source: str = "files"
    """Name of the source; files = files of your own."""
    train: UserPath | None = None
    """Your training file; required for data.source files."""
    validation: UserPath | None = None
    """Your validation file; None = a tenth of the training sentences is held out."""
    test: UserPath | None = None
    """Your test file; None = no test split."""

    def __post_init__(self):
        super().__post_init__()
        own = self.source == "files"
        self.only_if(own, "data.source files", "train", "validation", "test")
        self.format_only_if(own, "data.source files")

    @property
    def needs(self) -> str:
        return {"small_grammar": "", "files": "your sentences"}.get(self.source, self.source)

    def given_files(self) -> dict[str, Path]:
        """The path of each split's given file. Raises: DataError without a training file."""
        if self.train is None:
            raise DataError("data.source files needs your training file: give it with --data.train FILE")
        given = {"train": self.train, "validation": self.validation, "test": self.test}
        return {split: Path(file) for split, file in given.items() if file is not None}

    def check_after(self, earlier: DataConfig) -> None:
        """Raises DataError when an earlier run was trained on sentences of the validation or test split.

        Runs that hold out a tenth of the same file hold out the same sentences.
        """
        if not (isinstance(earlier, type(self)) and self.source == earlier.source == "files" and earlier.train):
            return
        scored = {"validation": self.validation, "test": self.test}
        if self.validation is None and earlier.validation is not None:
            scored["validation"] = self.train
        for split, file in scored.items():
            if file is not None and Path(file).resolve() == Path(earlier.train).resolve():
                raise DataError(
                    f"the earlier run was trained on {file}, which has sentences of the {split} split; give another "
                    f"file with --data.{split}"
                )
