"""The inputs of the verbs of classifiers, texts or image files, as batches of the model."""

import functools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxnlp.commands.files import chunks, one_line, rows_of
from jaxnlp.commands.tables import TextColumns
from jaxnlp.corpus import NumpyBatch
from jaxnlp.images.processor import SUFFIXES, ImageProcessor
from jaxnlp.inference import require_texts
from jaxnlp.text.classifier_processor import TextClassifierProcessor

IMAGES = 64
"""Number of images in a batch."""
TEXTS = 64
"""Number of texts in a batch."""
LENGTH_MULTIPLE = 16
"""Texts are padded to a multiple of this length, so that few programs are compiled."""


class Given(NamedTuple):
    """The inputs of a verb.

    Attributes:
      inputs: texts, or image files and folders of them; () = those of the file, or of standard input.
      pair: the second text of each, for pairs.
      file: one text a line, or two texts separated by a tab; or a table; None = standard input.
      resize: crop and scale images of another size.
      columns: where a table has the texts.
    """

    inputs: tuple[str, ...] = ()
    pair: tuple[str, ...] = ()
    file: Path | None = None
    resize: bool = False
    columns: TextColumns = TextColumns()


class Chunk(NamedTuple):
    """Some of the inputs.

    Attributes:
      shown: the columns of each input in the output: its texts, without line breaks, or its file [N].
      fields: the same for JSON, by name [N].
      batches: (indices of the inputs [n], batch whose first n rows they are), in any order.
      truncated: indices of the inputs that were truncated.
    """

    shown: list[tuple[str, ...]]
    fields: list[dict[str, str]]
    batches: Iterator[tuple[np.ndarray, NumpyBatch]]
    truncated: Sequence[int] = ()


def read_inputs(processor: Any, given: Given) -> Iterator[Chunk]:
    """The inputs of a command in chunks.

    Raises: ValueError, OSError for inputs that are missing or cannot be read, and for options that do not apply.
    """
    for rows in given_rows(processor, given):
        yield read_chunk(processor, rows, resize=given.resize)


@functools.singledispatch
def given_rows(processor: Any, given: Given) -> Iterator[Sequence[Sequence[Any]]]:
    """The inputs of a command, in lists of rows: a text, two texts, or the path of an image.

    A new kind of processor registers functions for this and for `read_chunk`.

    Raises: ValueError, OSError.
    """
    raise ValueError(f"inputs of a {type(processor).__name__} cannot be read from the command line")


@functools.singledispatch
def read_chunk(processor: Any, rows: Sequence[Sequence[Any]], *, resize: bool = False) -> Chunk:
    """Rows of inputs as batches of the model. Raises: ValueError, OSError for rows that cannot be read."""
    raise ValueError(f"inputs of a {type(processor).__name__} cannot be read")


@given_rows.register
def _(processor: TextClassifierProcessor, given: Given) -> Iterator[Sequence[Sequence[Any]]]:
    if given.resize:
        raise ValueError("--resize applies only to images; remove it")
    yield from chunks(rows_of(given.inputs, given.pair, given.file, count=processor.texts, columns=given.columns))


@read_chunk.register
def _(processor: TextClassifierProcessor, rows: Sequence[Sequence[Any]], *, resize: bool = False) -> Chunk:
    if resize:
        raise ValueError("resize applies only to images; remove it")
    require_texts([text for row in rows for text in row], keep_blank=True)
    names = ("text",) if processor.texts == 1 else ("text", "pair")
    found = processor.tokenize(rows)
    return Chunk(
        [tuple(map(one_line, row)) for row in rows],
        [dict(zip(names, row, strict=True)) for row in rows],
        _text_batches(processor, found.tokens, found.segments),
        found.truncated_rows,
    )


def _text_batches(
    processor: TextClassifierProcessor, tokens: Sequence[np.ndarray], segments: Sequence[np.ndarray]
) -> Iterator[tuple[np.ndarray, NumpyBatch]]:
    """Batches of texts of similar length."""
    lengths = np.array([processor.length(kinds) for kinds in segments])
    order = np.argsort(lengths, kind="stable")
    for start in range(0, len(order), TEXTS):
        rows = order[start : start + TEXTS]
        longest = -(-int(lengths[rows].max()) // LENGTH_MULTIPLE) * LENGTH_MULTIPLE
        length = min(longest, processor.max_length)
        yield rows, processor.batch([tokens[row] for row in rows], [segments[row] for row in rows], TEXTS, length)


@given_rows.register
def _(processor: ImageProcessor, given: Given) -> Iterator[Sequence[Sequence[Any]]]:
    refuse_texts(given)
    for files in chunks(image_files(tuple(map(Path, given.inputs))), IMAGES):
        yield [(file,) for file in files]


@read_chunk.register
def _(processor: ImageProcessor, rows: Sequence[Sequence[Any]], *, resize: bool = False) -> Chunk:
    if any(len(row) != 1 for row in rows):
        raise ValueError("this model reads images, not pairs of texts; remove the pairs")
    names = [f"image {number}" if isinstance(one, np.ndarray) else str(one) for number, (one,) in enumerate(rows)]
    images = np.stack([processor.array(one, resize=resize) for (one,) in rows])
    return Chunk([(name,) for name in names], [{"file": name} for name in names], _image_batches(images), truncated=())


def _image_batches(images: np.ndarray) -> Iterator[tuple[np.ndarray, NumpyBatch]]:
    for start in range(0, len(images), IMAGES):
        part = images[start : start + IMAGES]
        padded = np.pad(part, [(0, IMAGES - len(part)), (0, 0), (0, 0), (0, 0)])
        yield np.arange(start, start + len(part)), {"images": padded}


def refuse_texts(given: Given) -> None:
    """Raises: ValueError for options that apply only to texts."""
    if given.pair or given.file is not None:
        raise ValueError("--pair and --file apply only to texts; remove them")


def image_files(given: tuple[Path, ...]) -> list[Path]:
    """The files, and the images in the folders among them. Raises: ValueError naming a folder without images."""
    if not given:
        raise ValueError("give image files, or a folder of them")
    found = []
    for path in given:
        inside = sorted(file for file in path.iterdir() if file.suffix.lower() in SUFFIXES) if path.is_dir() else [path]
        if not inside:
            raise ValueError(f"{path} has no image files ({', '.join(SUFFIXES)}); its subfolders are not read")
        found += inside
    return found
