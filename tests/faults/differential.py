"""Readers next to their well-kept counterparts: the same result on generated valid inputs.

    python -m tests.faults.differential --inputs 100000

Python's csv and json, conllu, the tokenizers library for tokenizer.json, sentencepiece, safetensors, Pillow and NumPy.
"""

import argparse
import csv
import io
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import conllu
import numpy as np
import safetensors.numpy
import sentencepiece
from PIL import Image
from tokenizers import Tokenizer

from data.readers.object_arrays import read_array, read_object_array
from jaxnlp.convert.folders import read_tensors
from jaxnlp.images.reading import open_image
from jaxnlp.input_files.tables import Columns, read_table
from jaxnlp.input_files.text_files import read_text_file
from jaxnlp.text.conllu import parse_conllu, written
from jaxnlp.text.sentencepiece import read_sentencepiece
from jaxnlp.text.tokenizer_files import read_decoder_tokenizer
from tests.encoder_folders import TEXTS

FIELDS = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
"""What conllu calls the columns."""
PIECES = [
    *("a", "b", "the", " ", "  ", "\t", "é", "漢", "😀", "ñ", "_", "▁", "ﬁ", "\uff21", "①", "\u0301"),
    *("-", ".", ",", "1"),
]
"""Parts of texts."""


def text_of(generator: random.Random, further: Sequence[str] = (), most: int = 12) -> str:
    """A text of a few pieces."""
    return "".join(generator.choices([*PIECES, *further, *TEXTS[0].split()], k=generator.randrange(most)))


def tables(folder: Path, generator: random.Random) -> Iterator[None]:
    """Tables with a header as csv.writer writes them, read by csv.DictReader."""
    file = folder / "a.csv"
    while True:
        width = generator.randrange(2, 5)
        names = ["text", "label", "c", "d"][:width]
        delimiter, quoting = generator.choice(",;|\t"), generator.choice((csv.QUOTE_MINIMAL, csv.QUOTE_ALL))
        further = [delimiter] if quoting == csv.QUOTE_ALL or delimiter != "\t" else []
        rows = [
            [text_of(generator, [*further, '"', "\n"]).strip() or "x" for _ in names]
            for _ in range(generator.randrange(1, 6))
        ]
        stream = io.StringIO()
        writer = csv.writer(
            stream, delimiter=delimiter, quoting=quoting, lineterminator=generator.choice(("\n", "\r\n"))
        )
        writer.writerows([names, *rows])
        file.write_bytes(stream.getvalue().encode("utf-8-sig" if generator.random() < 0.3 else "utf-8"))
        found = read_table(file, Columns(("text",), "label"), dialect=dialect(delimiter))
        expected = [tuple(row.values()) for row in csv.DictReader(io.StringIO(stream.getvalue()), delimiter=delimiter)]
        assert [row.cells for row in found.rows] == [
            tuple(cell.replace("\r\n", "\n") for cell in row) for row in expected
        ]
        yield


def dialect(delimiter: str) -> Any:
    """The dialect of a table with quotes."""
    from jaxnlp.input_files.tables import Dialect

    return Dialect(delimiter=delimiter, quotes="csv")


def json_rows(folder: Path, generator: random.Random) -> Iterator[None]:
    """JSON lines as json.dumps writes them."""
    file = folder / "a.jsonl"
    while True:
        rows = [
            {
                "text": text_of(generator, ['"', "\\", "\n", "\x7f", "\u2028"]),
                "label": generator.choice(["a", 1, 2.5, True]),
            }
            for _ in range(generator.randrange(1, 6))
        ]
        ascii_only = generator.random() < 0.5
        file.write_text("".join(json.dumps(row, ensure_ascii=ascii_only) + "\n" for row in rows), encoding="utf-8")
        found = read_table(file, Columns(("text",), "label")).rows
        assert [(row.texts[0], row.label) for row in found] == [
            (row["text"], row["label"] if isinstance(row["label"], str) else json.dumps(row["label"])) for row in rows
        ]
        yield


def trees(folder: Path, generator: random.Random) -> Iterator[None]:
    """Trees with comments, multiword tokens and empty nodes as conllu writes them."""
    file = folder / "a.conllu"
    while True:
        sentences = [tree_of(generator) for _ in range(generator.randrange(1, 4))]
        file.write_text("".join(sentence.serialize() for sentence in sentences), encoding="utf-8")
        text = read_text_file(file)
        for read, expected in zip(parse_conllu(text, str(file)), conllu.parse(text), strict=True):
            words = [token for token in expected if isinstance(token["id"], int)]
            assert read.name == expected.metadata["sent_id"]
            assert read.words == tuple(word["form"] for word in words)
            assert read.upos == tuple(word["upos"] or "_" for word in words)
            assert read.xpos == tuple(word["xpos"] or "_" for word in words)
            assert read.heads == tuple(word["head"] for word in words)
            assert read.relations == tuple(word["deprel"] for word in words)
            assert conllu.parse(written([read]))[0] == expected
        yield


def tree_of(generator: random.Random) -> conllu.TokenList:
    """A sentence whose words hang on words that were drawn before."""
    count = generator.randrange(1, 8)
    order = generator.sample(range(1, count + 1), count)
    heads = {word: generator.choice(order[:number]) if number else 0 for number, word in enumerate(order)}
    tokens, covered = list[dict[str, Any]](), 0
    for word in range(1, count + 1):
        if covered < word < count and generator.random() < 0.1:
            covered = word + 1
            tokens.append(dict.fromkeys(FIELDS) | {"id": (word, "-", covered), "form": "both"})
        form = " ".join(text_of(generator, ["a b", "_", "'"]).split()) or "x"  # conllu ends a column at two spaces, too
        tokens.append(token_of(generator, word, form) | {"head": heads[word]})
        tokens[-1]["deprel"] = generator.choice(("nsubj", "nmod:of")) if heads[word] else "root"
        if generator.random() < 0.1:
            tokens.append(token_of(generator, (word, ".", 1), "empty"))
    return conllu.TokenList(tokens, {"sent_id": str(generator.randrange(100)), "text": "# a = b"})


def token_of(generator: random.Random, name: Any, form: str) -> dict[str, Any]:
    """A line without a place in the tree."""
    feats = generator.choice((None, {"Case": "Nom", "Number": "Sing"}))
    return dict.fromkeys(FIELDS) | {
        "id": name,
        "form": form,
        "lemma": generator.choice((None, form)),
        "upos": generator.choice((None, "NOUN", "X")),
        "xpos": generator.choice((None, "NN", ",", "$")),
        "feats": feats,
        "misc": generator.choice((None, {"SpaceAfter": "No"})),
    }


def pieces(folder: Path, generator: random.Random) -> Iterator[None]:
    """Unigram and BPE models of sentencepiece, with its texts."""
    models = []
    for kind, fallback in (("unigram", False), ("bpe", False), ("bpe", True)):
        stream = io.BytesIO()
        sentencepiece.SentencePieceTrainer.Train(
            sentence_iterator=iter(TEXTS * 4),
            model_writer=stream,
            model_type=kind,
            vocab_size=360 if fallback else 150,
            hard_vocab_limit=False,
            byte_fallback=fallback,
            minloglevel=2,
        )
        file = folder / f"{len(models)}.model"
        file.write_bytes(stream.getvalue())
        models.append((read_sentencepiece(file), sentencepiece.SentencePieceProcessor(model_proto=stream.getvalue())))
    while True:
        ours, theirs = generator.choice(models)
        text = text_of(generator, list("abcdefghijklmnopqrstuvwxyz"), 30)
        expected = theirs.encode(text, out_type=str)
        assert ours.pieces(text) == expected, (text, ours.pieces(text), expected)
        yield


def tokenizers(folder: Path, generator: random.Random) -> Iterator[None]:
    """The tokenizer of a GPT-2, next to the library that reads the file itself."""
    from tests import decoder_folders

    decoder_folders.save_tokenizer(folder, "gpt2")
    ours, _, _ = read_decoder_tokenizer(folder)
    theirs = Tokenizer.from_file(str(folder / "tokenizer.json"))
    while True:
        text = text_of(generator, ["<|endoftext|>", "\n", "\x00", "\u200b"], 30)
        assert ours.encode(text).ids == theirs.encode(text).ids, text
        yield


def tensors(folder: Path, generator: random.Random) -> Iterator[None]:
    """Files of safetensors."""
    (folder / "config.json").write_text("{}")
    kinds = (np.float32, np.float16, np.float64, np.int64, np.int8, np.uint8, np.bool_)
    while True:
        arrays = {}
        for number in range(generator.randrange(1, 5)):
            shape = tuple(generator.randrange(4) for _ in range(generator.randrange(4)))
            raw = np.frombuffer(generator.randbytes(max(1, int(np.prod(shape)))), np.uint8)[: int(np.prod(shape))]
            arrays[f"{text_of(generator)}.{number}"] = raw.reshape(shape).astype(generator.choice(kinds))
        safetensors.numpy.save_file(arrays, folder / "model.safetensors")
        found, expected = read_tensors(folder, str(folder)), safetensors.numpy.load_file(folder / "model.safetensors")
        assert found.keys() == expected.keys() == arrays.keys()
        for name, array in expected.items():
            assert found[name].dtype == array.dtype
            np.testing.assert_array_equal(found[name], array)
        yield


def pictures(folder: Path, generator: random.Random) -> Iterator[None]:
    """Opaque images, as Pillow reads them."""
    while True:
        mode, format = generator.choice(("RGB", "L", "P", "1")), generator.choice(("PNG", "JPEG", "BMP", "GIF", "TIFF"))
        size = generator.randrange(1, 20), generator.randrange(1, 20)
        picture = Image.frombytes("RGB", size, generator.randbytes(3 * size[0] * size[1])).convert(mode)
        picture = picture.convert("L") if format == "JPEG" and mode in "P1" else picture
        file = folder / f"a.{format.lower()}"
        picture.save(file, format)
        channels = generator.choice((1, 3))
        with Image.open(file) as theirs:
            expected = np.asarray(theirs.convert("RGB" if channels == 3 else "L"))
        np.testing.assert_array_equal(np.asarray(open_image(file, channels)), expected)
        yield


def arrays(folder: Path, generator: random.Random) -> Iterator[None]:
    """Arrays, and object arrays of them, as NumPy reads them."""
    file = folder / "a.npy"
    while True:
        shape = tuple(generator.randrange(4) for _ in range(generator.randrange(4)))
        kinds = ("<f4", "<f8", ">f4", "<i8", ">i2", "|u1", "|b1", "<f2")
        held = [
            np.frombuffer(generator.randbytes(64), np.uint8)[: int(np.prod(shape))].reshape(shape).astype(kind)
            for kind in generator.choices(kinds, k=generator.randrange(1, 5))
        ]
        np.save(file, held[0])
        np.testing.assert_array_equal(read_array(file), np.load(file))
        several = np.empty(len(held), object)
        for index, array in enumerate(held):
            several[index] = array
        np.save(file, several, allow_pickle=True)
        for one, other in zip(read_object_array(file), np.load(file, allow_pickle=True), strict=True):
            assert one.shape == other.shape
            assert one.dtype.kind == other.dtype.kind
            np.testing.assert_array_equal(one, other)
        yield


CHECKS: dict[str, Callable[[Path, random.Random], Iterator[None]]] = {
    "csv": tables,
    "json": json_rows,
    "conllu": trees,
    "sentencepiece": pieces,
    "tokenizers": tokenizers,
    "safetensors": tensors,
    "Pillow": pictures,
    "NumPy": arrays,
}


def check(name: str, inputs: int, seed: int = 0) -> float:
    """Compares inputs with a counterpart. Returns: seconds. Raises: AssertionError for the first that differs."""
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        made = CHECKS[name](Path(folder), random.Random(f"{name} {seed}"))
        for _ in range(inputs):
            next(made)
    return time.perf_counter() - started


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--inputs", type=int, default=100_000, help="of all counterparts together")
    parser.add_argument("--only", nargs="*", default=list(CHECKS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args(arguments)
    rows = []
    for name in given.only:
        inputs = -(-given.inputs // len(given.only))
        seconds = round(check(name, inputs, given.seed), 1)
        rows.append(
            {"kind": "differential", "counterpart": name, "inputs": inputs, "seconds": seconds, "differences": 0}
        )
        print(rows[-1], flush=True)
    if given.json:
        given.json.write_text(json.dumps(rows, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
