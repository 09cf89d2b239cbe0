"""Options for the format of a verb's files, where it differs from that of the training files."""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

from jaxnlp.config import Config
from jaxnlp.input_files.delimited import Quotes, checked_delimiter
from jaxnlp.input_files.text_files import check_encoding


@dataclasses.dataclass(frozen=True)
class FileFormat(Config):
    """The format of files that a command reads, if it differs from that of the training files."""

    section: ClassVar[str] = "data"

    encoding: str | None = None
    """Encoding of the files to read: utf-8, cp1252 (Windows), utf-16 or another one; None = as in training."""
    delimiter: str | None = None
    """Character between the fields of a table in --file; None = as in training."""
    quotes: Quotes | None = None
    """Quotes of a table in --file, see jaxnlp train; None = as in training."""

    def __post_init__(self):
        super().__post_init__()
        if self.encoding is not None:
            check_encoding(self.encoding, self.full_name("encoding"))
        object.__setattr__(self, "delimiter", checked_delimiter(self.delimiter, self.full_name("delimiter")))

    @property
    def given(self) -> Mapping[str, Any]:
        """The fields that are not None."""
        return {name: value for name, value in vars(self).items() if value is not None}

    def check_files(self, file: object, *others: object) -> None:
        """Raises ValueError when a field is given without a file. `file` may be a table, with all fields; `others` have
        only an encoding."""
        for name in self.given:
            if file is None and (name != "encoding" or others.count(None) == len(others)):
                raise ValueError(f"--data.{name} applies only to files, such as --file; give a file")
