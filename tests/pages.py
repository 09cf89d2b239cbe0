"""The README and the pages of docs, as tests read them: blocks of code, commands, and the runs that commands make."""

import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])


class Code(NamedTuple):
    """A block of code: what follows the backticks at its beginning, and its lines."""

    language: str
    text: str


def blocks_of(page: Path) -> list[Code]:
    """The blocks of code of a page."""
    text = page.read_text(encoding="utf-8")
    return [Code(*found) for found in re.findall(r"^```([^\n]*)\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE)]


def shell_lines(page: Path) -> Iterator[list[str]]:
    """The words of each shell command of a page: commands are the blocks without a language."""
    for language, text in blocks_of(page):
        if not language:
            for line in text.replace("\\\n", " ").splitlines():
                if words := shlex.split(line, comments=True):
                    yield words


def commands_of(page: Path) -> Iterator[tuple[str, list[str]]]:
    """The verbs and programs of jaxnlp that a page's commands name, and their arguments."""
    for words in shell_lines(page):
        if words[0] == "jaxnlp":
            yield words[1], words[2:]


def command_for(place: str, pages: Sequence[Path]) -> list[str]:
    """The arguments of the first `jaxnlp train` on these pages that trains in this folder."""
    for page in pages:
        for program, words in commands_of(page):
            if program == "train" and "--workdir" in words and words[words.index("--workdir") + 1] == place:
                return words
    raise LookupError(f"no command of the pages trains in {place}")
