"""`jaxnlp attention`: a model's attention weights on a text.

A task whose models attend has `attend` among its functions, and this verb or a subclass among its commands.
`attend(trained, text, ..., max_length=None)` returns a `TextAttention`.
"""

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tyro

from jaxnlp.input_files.rows import check_row
from jaxnlp.pages.attention_page import render_page
from jaxnlp.saving.atomic_files import PAGES, require_place, write_file
from jaxnlp.tasks import Command, Trained
from jaxnlp.text.blank_texts import refuse_blank

PAGE_TOKENS = 128
"""Default maximum number of tokens on a page, whose size is quadratic in it."""


@dataclasses.dataclass(frozen=True)
class Attention(Command):
    """Draws the attention weights on a text, of all layers and heads, as a page that opens from disk."""

    as_trained = True

    text: tyro.conf.Positional[str]
    """Text to read."""
    out: Path = Path("attention.html")
    """The page to write."""
    max_length: int = PAGE_TOKENS
    """Maximum length in tokens; longer texts are truncated."""

    def second(self) -> str | None:
        """The second text, if the model reads two; otherwise None."""
        return None

    def __call__(self, trained: Trained) -> None:
        """Writes the page, and prints its path.

        Raises: ValueError, OSError for a blank text; for a model without attention; when the page cannot be written.
        """
        require_place(self.out, *PAGES)
        second = self.second()
        page = page_of(trained, (self.text,) if second is None else (self.text, second), self.max_length)
        write_file(self.out, page.encode())
        print(self.out)


def page_of(trained: Trained, texts: Sequence[str], max_length: int = PAGE_TOKENS) -> str:
    """The page of all layers and heads; a note on standard error counts truncated texts.

    Raises: ValueError for a blank text, and what the task's `attend` refuses.
    """
    check_row(tuple(texts), 1)
    refuse_blank(texts)
    attention = trained.attend(*texts, max_length=max_length)
    if attention.truncated:
        longest = max(len(maps.columns) for maps in attention.maps)
        print(f"note: the text was truncated to {longest} tokens", file=sys.stderr)
    model = trained.folder.resolve().name if trained.folder is not None else trained.name
    return render_page(attention.maps, title=attention.title, model=model)


def attends(model: Any) -> bool:
    """Whether a module has attention weights to show."""
    return model.config.attends


def require_attention(trained: Trained) -> None:
    """Raises ValueError for a model without attention weights to show."""
    if not attends(trained.model):
        raise ValueError(f"{trained.name} has no attention to show: its model is a {type(trained.model).__name__}")
