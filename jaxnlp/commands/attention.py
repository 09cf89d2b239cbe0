"""`python -m jaxnlp attention`."""

import dataclasses
import sys
from pathlib import Path
from typing import Literal

import tyro

from jaxnlp.attention_page import render_page
from jaxnlp.commands.files import rows_of
from jaxnlp.encoders import load_text_model
from jaxnlp.files import write_file
from jaxnlp.texts import attend_text

LONGEST = 128
"""Pieces on a page by default: its size grows with their square."""


@dataclasses.dataclass(frozen=True)
class Attention:
    """Draws what each piece of a text attends to, in all layers and heads, as a page that opens from disk."""

    model: tyro.conf.Positional[str]
    """A run's folder, a pretrained BERT's folder, or its name on the Hugging Face Hub."""
    text: tyro.conf.Positional[str]
    """What is read."""
    pair: str | None = None
    """A second text, read together with the first as BERT reads pairs; text tasks read theirs apart."""
    out: Path = Path("attention.html")
    """Where to write the page."""
    longest: int = LONGEST
    """Pieces at most; longer texts are cut."""
    ignore: tuple[str, ...] = ()
    """Tensors of a pretrained model to leave alone, by their names or how these begin, such as classifier."""
    checkpoint: int | Literal["best", "latest"] = "best"
    """The best on the validation split, the newest, or a step."""


def attention(command: Attention) -> None:
    """Writes the page and says where.

    Raises:
      RunError, DamagedCheckpointError: when there is no such run or checkpoint, or its model reads no texts this way.
      PretrainedError, WeightsError: for what is neither a run nor a pretrained model.
      ValueError, OSError: for a blank text; when the page cannot be written.
    """
    pairs = () if command.pair is None else (command.pair,)
    (row,) = rows_of([command.text], pairs, None, count=1 + len(pairs))
    held = load_text_model(command.model, checkpoint=command.checkpoint, ignore=command.ignore)
    maps = attend_text(held, *row, longest=command.longest)
    if maps.truncated:
        print(f"note: the text was cut after {len(maps.pieces)} pieces", file=sys.stderr)
    page = render_page(maps.pieces, maps.weights, title=" | ".join(row), model=Path(command.model).resolve().name)
    write_file(command.out, page.encode())
    print(command.out)
