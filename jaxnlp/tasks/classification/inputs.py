"""The inputs of the verbs of classifiers, texts or image files, as batches of the model."""

import functools
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxnlp.corpus import NumpyBatch
from jaxnlp.images.processor import ImageProcessor
from jaxnlp.images.reading import SUFFIXES, is_image_file, printable
from jaxnlp.inference.batches import ROW_SHAPES, Shape, text_shapes
from jaxnlp.input_files.rows import TextColumns, chunks, rows_of
from jaxnlp.input_files.web_addresses import absence
from jaxnlp.text.blank_texts import is_blank
from jaxnlp.text.classifier_processor import TextClassifierProcessor, number_of_texts
from jaxnlp.text.raw_texts import one_line

IMAGES = 64
"""Number of images to read at once."""


class CommandInputs(NamedTuple):
    """The inputs of a verb.

    Attributes:
      inputs: texts, or image files and folders of them; () = those of the file, or of standard input.
      pair: the second text of each, for pairs.
      file: one text a line, or two separated by a tab; or a table; None = standard input.
      resize: scale and crop images of another size.
      columns: of the texts in a table.
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
      kept: indices of the M inputs to answer, neither blank nor unread.
      lengths: of these inputs in positions [M].
      batch: (indices of at most B of the M inputs, shape) -> a batch; its last rows are padding.
      truncated: indices of truncated inputs.
      unread: why an input cannot be read, by index.
    """

    shown: list[tuple[str, ...]]
    fields: list[dict[str, str]]
    kept: Sequence[int]
    lengths: Sequence[int]
    batch: Callable[[Sequence[int], Shape], NumpyBatch]
    truncated: Sequence[int] = ()
    unread: Mapping[int, Exception] = {}

    @property
    def blank(self) -> list[int]:
        """Indices of the blank texts."""
        return sorted(set(range(len(self.shown))).difference(self.kept, self.unread))


def chosen_part(processor: Any, name: str | None, texts: int | None = None) -> str:
    """The name of a part.

    Args:
      processor: of all parts.
      name: of the part; None = the only part, or the only one with this number of texts.
      texts: of an example; None = any number.

    Raises: ValueError, with the names of the parts, when there is no such part, or several.
    """
    parts: dict[str, Any] = processor.by_part
    if name is not None and name not in parts:
        names = ", ".join(filter(None, parts)) or "no parts"
        raise ValueError(f"this model does not have the part {name!r}; it has: {names}")
    if name is not None or len(parts) == 1:
        return name or next(iter(parts))
    fitting = [key for key, one in parts.items() if texts in (None, one.texts)]
    if len(fitting) != 1:
        hint = "" if fitting or texts is None else f"; none of them takes {number_of_texts(texts)}"
        raise ValueError(f"choose a part (--part): {', '.join(fitting or parts)}{hint}")
    return fitting[0]


@functools.singledispatch
def given_rows(processor: Any, given: CommandInputs) -> Iterator[Sequence[Sequence[Any]]]:
    """The inputs of a command, in lists of rows: a text, two texts, or the path of an image. Raises: ValueError,
    OSError.

    A new kind of processor registers functions for this, for `batch_shapes` and for `read_chunk`.
    """
    raise ValueError(f"inputs of a {type(processor).__name__} cannot be read from the command line")


@functools.singledispatch
def batch_shapes(processor: Any) -> tuple[Shape, ...]:
    """The shapes of the batches of `read_chunk`."""
    raise ValueError(f"inputs of a {type(processor).__name__} cannot be read")


@functools.singledispatch
def read_chunk(processor: Any, rows: Sequence[Sequence[Any]], *, resize: bool = False) -> Chunk:
    """Rows of inputs as batches of the model. Raises: ValueError, OSError for unreadable rows."""
    raise ValueError(f"inputs of a {type(processor).__name__} cannot be read")


@batch_shapes.register
def _(processor: TextClassifierProcessor) -> tuple[Shape, ...]:
    return text_shapes(processor.max_length)


@batch_shapes.register
def _(processor: ImageProcessor) -> tuple[Shape, ...]:
    return ROW_SHAPES


@given_rows.register
def _(processor: TextClassifierProcessor, given: CommandInputs) -> Iterator[Sequence[Sequence[Any]]]:
    if given.resize:
        raise ValueError("--resize applies only to images; remove it")
    numbers = {part.texts for _, part in processor.parts}
    count = None if processor.pairs == "optional" or len(numbers) > 1 else min(numbers)
    yield from chunks(rows_of(given.inputs, given.pair, given.file, count=count, columns=given.columns))


@read_chunk.register
def _(processor: TextClassifierProcessor, rows: Sequence[Sequence[Any]], *, resize: bool = False) -> Chunk:
    if resize:
        raise ValueError("resize applies only to images; remove it")
    processor = processor.of_texts(max(map(len, rows), default=1))
    kept = [index for index, row in enumerate(rows) if not is_blank(row)]
    tokenized = processor.tokenize([rows[index] for index in kept])

    def batch(indices: Sequence[int], shape: Shape) -> NumpyBatch:
        tokens, segments = ([column[index] for index in indices] for column in (tokenized.tokens, tokenized.segments))
        return processor.batch(tokens, segments, *shape)

    return Chunk(
        [tuple(map(one_line, row)) for row in rows],
        [dict(zip(("text", "pair"), row, strict=False)) for row in rows],
        kept,
        [processor.length(kinds) for kinds in tokenized.segments],
        batch,
        [kept[index] for index in tokenized.truncated_rows],
    )


@given_rows.register
def _(processor: ImageProcessor, given: CommandInputs) -> Iterator[Sequence[Sequence[Any]]]:
    refuse_texts(given)
    for files in chunks(image_files(tuple(map(Path, given.inputs))), IMAGES):
        yield [(file,) for file in files]


@read_chunk.register
def _(processor: ImageProcessor, rows: Sequence[Sequence[Any]], *, resize: bool = False) -> Chunk:
    if any(len(row) != 1 for row in rows):
        raise ValueError("this model reads images, not pairs of texts; remove the pairs")
    images, unread = read_each(processor, [one for (one,) in rows], resize=resize)
    names = [printable(one) if isinstance(one, str | Path) else f"image {index}" for index, (one,) in enumerate(rows)]
    kept = list(images)

    def batch(indices: Sequence[int], shape: Shape) -> NumpyBatch:
        pixels = np.zeros((shape.rows, *processor.shape), np.uint8)
        for row, index in enumerate(indices):
            pixels[row] = images[kept[index]]
        return {"images": pixels}

    return Chunk(
        [(one_line(name),) for name in names],
        [{"file": name} for name in names],
        kept,
        [ROW_SHAPES[0].length] * len(kept),
        batch,
        unread=unread,
    )


def read_each(
    processor: ImageProcessor, images: Sequence[Any], *, resize: bool
) -> tuple[dict[int, np.ndarray], dict[int, Exception]]:
    """Images [I, I, R] uint8, and why others cannot be read; both by index."""
    arrays, unread = dict[int, np.ndarray](), dict[int, Exception]()
    for index, image in enumerate(images):
        try:
            arrays[index] = processor.array(image, resize=resize)
        except (ValueError, OSError) as error:
            unread[index] = error
    return arrays, unread


def refuse_texts(given: CommandInputs) -> None:
    """Raises: ValueError for options that apply only to texts."""
    if given.pair or given.file is not None:
        raise ValueError("--pair and --file apply only to texts; remove them")


def image_files(given: tuple[Path, ...]) -> list[Path]:
    """The files, and the images in the folders among them. A note on standard error counts a folder's other files.

    Raises: ValueError naming a folder without images; FileNotFoundError.
    """
    if not given:
        raise ValueError("give image files, or a folder of them")
    files = list[Path]()
    for path in (path.expanduser() for path in given):
        if not path.exists():
            raise FileNotFoundError(f"the image {path} {absence(path, 'image')}")
        inside = sorted(filter(is_image_file, path.iterdir())) if path.is_dir() else [path]
        if not inside:
            raise ValueError(f"{path} has no image files ({', '.join(SUFFIXES)}); its subfolders are not read")
        if path.is_dir():
            _report_others(path, {*inside})
        files += inside
    return files


def _report_others(folder: Path, images: Collection[Path]) -> None:
    others = sorted(entry for entry in folder.iterdir() if entry not in images and not entry.name.startswith("."))
    if others:
        print(
            f"note: files and folders in {folder} that are ignored, because they are not images "
            f"({', '.join(SUFFIXES)}): {len(others):,}, such as {others[0].name}",
            file=sys.stderr,
        )
