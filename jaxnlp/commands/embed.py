"""`python -m jaxnlp embed`."""

import dataclasses
import io
import json
from pathlib import Path
from typing import Literal

import numpy as np
import tyro

from jaxnlp.commands.files import chunks, one_line, report_cut, rows_of
from jaxnlp.encoders import Pooling, load_text_model
from jaxnlp.files import write_file
from jaxnlp.texts import embed_texts, units


@dataclasses.dataclass(frozen=True)
class Embed:
    """Texts as vectors: in a file of NumPy's, or as lines of JSON on standard output."""

    model: tyro.conf.Positional[str]
    """A run's folder, a pretrained BERT's folder, or its name on the Hugging Face Hub."""
    texts: tyro.conf.Positional[tuple[str, ...]] = ()
    """Texts; none = those of the file, or of standard input."""
    file: Path | None = None
    """A file with one text a line, UTF-8; - = standard input."""
    out: Path | None = None
    """Write the vectors to this file, [N, D] float32, as numpy.load reads them; None = print an object with the text
    and its vector for each, one a line."""
    similarities: bool = False
    """Print the cosine of each text's vector with every text's, and the text, with tabs between them, one line a text,
    in place of vectors."""
    pooling: Pooling | None = None
    """What a text's vector is: its first token's, the pooler's, or the mean over its tokens. None = as the run or the
    folder of sentence-transformers has it, else the mean."""
    ignore: tuple[str, ...] = ()
    """Tensors of a pretrained model to leave alone, by their names or how these begin, such as classifier."""
    checkpoint: int | Literal["best", "latest"] = "best"
    """The best on the validation split, the newest, or a step."""


def embed(command: Embed) -> None:
    """Writes or prints the vectors.

    Raises:
      RunError, DamagedCheckpointError: when there is no such run or checkpoint, or its model makes no vectors of texts.
      PretrainedError, WeightsError: for what is neither a run nor a pretrained model.
      ValueError, OSError: for texts that are missing or cannot be read; when the file cannot be written.
    """
    held = load_text_model(command.model, checkpoint=command.checkpoint, pooling=command.pooling, ignore=command.ignore)
    printed = command.out is None and not command.similarities
    texts: list[str] = []
    vectors: list[np.ndarray] = []
    truncated = 0
    for rows in chunks(rows_of(command.texts, (), command.file, count=1)):
        chunk = [text for (text,) in rows]
        found = embed_texts(held, chunk)
        texts, truncated = texts + chunk, truncated + found.truncated
        if printed:
            for text, vector in zip(chunk, found.values, strict=True):
                print(_line(text, vector))
            print(end="", flush=True)
        else:
            vectors.append(found.values)
    report_cut(truncated, len(texts), held.longest)
    if command.out is not None:
        content = io.BytesIO()
        np.save(content, np.concatenate(vectors))
        write_file(command.out, content.getvalue())
    if command.similarities:
        for text, cosines in zip(texts, _cosines(np.concatenate(vectors)), strict=True):
            print(*(f"{cosine:.4f}" for cosine in cosines), one_line(text), sep="\t")


def _line(text: str, vector: np.ndarray) -> str:
    # The shortest decimals that read back as the same float32; Python's own of a float64 have twice as many digits.
    numbers = ", ".join(map(str, vector))
    return f'{{"text": {json.dumps(text, ensure_ascii=False)}, "vector": [{numbers}]}}'


def _cosines(vectors: np.ndarray) -> np.ndarray:
    """[N, D] to [N, N]; of a zero vector 0."""
    directions = units(vectors)
    return directions @ directions.T
