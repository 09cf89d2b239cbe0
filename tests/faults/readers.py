"""Readers of files, each with valid files from which a fuzzer begins."""

import gzip
import io
import json
import shutil
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
from PIL import Image

from data.images import CIFAR10, _decode_cifar10
from data.readers.birth_places import read_documents
from data.readers.birth_places import read_questions as read_birth_places
from data.readers.documents import file_documents
from data.readers.image_files import read_images
from data.readers.object_arrays import read_array, read_arrays, read_object_array
from data.readers.sentence_pairs import read_pairs
from data.readers.tagged_files import TagColumns, read_tagged
from data.squad import read_questions
from data.treebank import _read as read_treebank
from jaxnlp.images.reading import open_image
from jaxnlp.input_files.tables import Columns, read_header, read_table
from jaxnlp.input_files.text_files import read_text_file
from jaxnlp.text.sentencepiece import read_sentencepiece
from jaxnlp.text.word_vectors import read_word_vectors
from train.logs.json_lines import read_lines
from train.run.folder import read_environment


class Reader(NamedTuple):
    """A reader of one kind of file.

    Attributes:
      name: of the reader.
      file: the name of the file that is changed, in a folder.
      seeds: contents of valid files.
      read: reads the file at a path.
      folder: a folder whose other files are needed, too; None = the file is alone.
      seconds: of CPU time that it may take.
    """

    name: str
    file: str
    seeds: Sequence[bytes]
    read: Callable[[Path], Any]
    folder: Path | None = None
    seconds: float = 1.0


ONE, TWO = Columns(("text",), "label"), Columns(("text", "pair"), "label", "id")
TAGS = TagColumns(tags=("upos", "feats"))
WORDS = ("the", "tide", "eats", "stone", "sea", "猫", "été")


def readers_of(kinds: Sequence[str], root: Path, run: Path | None = None) -> list[tuple[str, Reader]]:
    """The readers of each kind: plain, folders, or run, which needs the folder of a small run. Folders are made in
    `root`."""
    found: dict[str, list[Reader]] = {}
    if "plain" in kinds:
        found["plain"] = plain_readers()
    if "folders" in kinds:
        found["folders"] = folder_readers(root)
    if "run" in kinds:
        if run is None:
            raise SystemExit("error: the kind run needs --run FOLDER")
        found["run"] = run_readers(root, run)
    return [(kind, reader) for kind, readers in found.items() for reader in readers]


def plain_readers() -> list[Reader]:
    """Readers whose file is alone."""
    csv = b'id,text,pair,label\n1,the sea,"a, ""b""\nc",x\n2,stone,tide,y\n3,"",the,x\n'
    tsv = b'id\ttext\tpair\tlabel\n1\tthe sea\tstone\tx\n2\ta "b\tc\ty\n'
    escaped = b'text,label\n"a \\"b\\", c",x\n"d",y\n'
    rows = (
        b'{"id": 1, "text": "a", "pair": "b", "label": "x"}\n{"id": 2, "text": "c", "pair": "", "label": ["x", "y"]}\n'
    )
    listed = json.dumps([{"text": "a", "label": 1}, {"text": "b", "label": 0.5, "other": {"c": [1, None]}}]).encode()
    columns = b"-DOCSTART- -X- O\n\nEU NNP B-ORG\nrejects VBZ O\nGerman JJ B-MISC\n\nPeter NNP B-PER\n"
    bmes = "北 B-LOC\n京 E-LOC\n人 O\n\n中 S-LOC\n国 O\n".encode()
    numbered = b"# id 1\n1\tthe\tO\n2-3\tdel\t_\n2\tde\tO\n3\tel\tB-X\n\n1\ta\tO\n"
    trees = (
        b"# sent_id = 1\n# text = the sea\n1\tthe\tthe\tDET\tDT\t_\t2\tdet\t_\t_\n"
        b"2\tsea\tsea\tNOUN\tNN\t_\t0\troot\t_\t_\n\n"
        b"1-2\tdel\t_\t_\t_\t_\t_\t_\t_\t_\n1\tde\tde\tADP\tIN\t_\t2\tcase\t_\tSpaceAfter=No\n2\tel\tel\tDET\tDT\t_\t0\troot"
        b"\t_\t_\n2.1\tx\t_\t_\t_\t_\t_\t_\t_\t_\n\n"
    )
    spacy = json.dumps([["the sea", {"entities": [[4, 7, "X"]]}], ["a 😀 b", {"entities": []}]]).encode()
    doccano = b'{"id": 1, "text": "the sea", "label": [[4, 7, "X"]]}\n{"id": 2, "text": "a", "label": []}\n'
    studio = json.dumps(
        [
            {
                "data": {"text": "the sea"},
                "annotations": [{"result": [{"value": {"start": 4, "end": 7, "labels": ["X"]}}]}],
            }
        ]
    ).encode()
    tokens = b'{"tokens": ["the", "sea"], "ner_tags": ["O", "B-X"]}\n{"words": ["a"], "labels": ["O"]}\n'
    answer = {"text": ["sea"], "answer_start": [4]}
    squad = {"id": "1", "question": "who?", "answers": [{"text": "sea", "answer_start": 4}], "is_impossible": False}
    article = {"title": "t", "paragraphs": [{"context": "the sea sings", "qas": [squad, squad | {"id": "2"}]}]}
    flat = b"".join(
        json.dumps({"id": n, "question": "who?", "context": "the sea sings", "answers": answer}).encode() + b"\n"
        for n in range(3)
    )
    pairs = b'the sea\tdas Meer\nstone\tStein\n"a"\t"b"\tCC\n'
    vectors = b"".join(f"{word} {n} 0.5 -1e-3\n".encode() for n, word in enumerate(WORDS))
    metrics = b'{"split": "train", "step": 1, "loss": 2.5}\n{"split": "validation", "step": 2, "loss": 2.25}\n'
    text = "the tide eats the stone\nété 猫\n\nand sand\n".encode()
    return [
        Reader("text", "a.txt", [text, text.decode().encode("utf-16"), b"\xe9t\xe9"], read_text_file),
        Reader("text in gzip", "a.txt.gz", [gzip.compress(text)], read_text_file),
        Reader("text in latin1", "a.txt", [text], lambda path: read_text_file(path, "latin1")),
        Reader("csv", "a.csv", [csv, escaped], lambda path: (read_table(path, ONE), read_header(path))),
        Reader("csv of pairs", "a.csv", [csv], lambda path: read_table(path, TWO, labelled=True, separator=None)),
        Reader("tsv", "a.tsv", [tsv], lambda path: read_table(path, TWO)),
        Reader("json lines", "a.jsonl", [rows, listed], lambda path: (read_table(path, ONE), read_header(path))),
        Reader("columns", "a.txt", [columns, bmes, numbered], lambda path: read_tagged(path, labelled=None)),
        Reader("tagged conllu", "a.conllu", [trees], read_tagged),
        Reader("tags of conllu", "a.conllu", [trees], lambda path: read_tagged(path, columns=TAGS, labelled=None)),
        Reader("treebank", "a.conllu", [trees], lambda path: read_treebank(path)),
        Reader("annotations", "a.json", [spacy, doccano, studio, tokens], read_tagged),
        Reader("squad", "a.json", [json.dumps({"data": [article]}).encode(), flat], read_questions),
        Reader("sentence pairs", "a.tsv", [pairs], lambda path: read_pairs([path])),
        Reader("documents", "a.txt", [text], file_documents),
        Reader("names", "a.txt", [b"the sea sings\nand stones\n"], read_documents),
        Reader("birth places", "a.tsv", [b"Where?\tHere\nWho?\tThere\n"], read_birth_places),
        Reader("word vectors", "a.vec", [vectors, b"7 3\n" + vectors], lambda path: read_word_vectors(path, WORDS)),
        Reader("word vectors in gzip", "a.gz", [gzip.compress(vectors)], lambda path: read_word_vectors(path, WORDS)),
        Reader("metrics.jsonl", "metrics.jsonl", [metrics], lambda path: read_lines(path, step=int)),
        Reader(
            "environment.json",
            "environment.json",
            [b'{"python": "3.11", "devices": 1}'],
            lambda p: read_environment(p.parent),
        ),
        *array_readers(),
        *image_readers(),
    ]


def saved(array: Any, **options: Any) -> bytes:
    """The bytes of np.save."""
    stream = io.BytesIO()
    np.save(stream, array, **options)
    return stream.getvalue()


def array_readers() -> list[Reader]:
    """NumPy's files."""
    ragged = np.empty(3, object)
    ragged[:] = [np.arange(n + 1, dtype=kind) for n, kind in enumerate(("<i8", "<f4", "|u1"))]
    stream = io.BytesIO()
    np.savez(stream, images=np.zeros((3, 4, 4), np.uint8), labels=np.array([0, 1, 0]))
    compressed = io.BytesIO()
    np.savez_compressed(compressed, images=np.zeros((3, 4, 4, 3), np.uint8), labels=np.array([0, 1, 0]))
    objects = [saved(ragged, allow_pickle=True)]
    return [
        Reader("npy", "a.npy", [saved(np.arange(6).reshape(2, 3)), saved(np.ones(3, np.float16))], read_array),
        Reader("npy of objects", "a.npy", objects, read_object_array),
        Reader("npy of objects in gzip", "a.npy.gz", [gzip.compress(objects[0])], read_object_array),
        Reader("npz", "a.npz", [stream.getvalue()], lambda path: read_arrays(path, ("images", "labels"))),
        Reader("npz of images", "a.npz", [stream.getvalue(), compressed.getvalue()], read_images),
    ]


def image_readers() -> list[Reader]:
    """Pillow's files. A few bytes may be 179 million pixels, the most that Pillow takes, which need their time."""
    rng, found = np.random.default_rng(0), list[Reader]()
    picture = Image.fromarray(rng.integers(0, 255, (9, 7, 3), np.uint8))
    for format in ("PNG", "JPEG", "BMP", "GIF", "WEBP", "TIFF"):
        seeds = []
        for mode in ("RGB", "L", "P"):
            stream = io.BytesIO()
            picture.convert("RGB" if format in ("JPEG", "WEBP") and mode == "P" else mode).save(stream, format)
            seeds.append(stream.getvalue())
        found.append(
            Reader(format.lower(), f"a.{format.lower()}", seeds, lambda path: open_image(path, 3), seconds=5.0)
        )
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:xz") as archive:
        for label in CIFAR10:
            member = tarfile.TarInfo(f"train/{label}/0.png")
            stream = io.BytesIO()
            picture.resize((32, 32)).save(stream, "PNG")
            member.size = len(stream.getvalue())
            archive.addfile(member, io.BytesIO(stream.getvalue()))
    found.append(Reader("archive of images", "a.tar.xz", [packed.getvalue()], read_archive, seconds=5.0))
    return found


def read_archive(path: Path) -> None:
    """Decodes an archive with an image of each class."""
    with mock.patch.multiple("data.images", CIFAR10_IMAGES=1, CIFAR10_HELD_OUT=0):
        _decode_cifar10(path, path.parent / "decoded.npy")


def folder_readers(root: Path) -> list[Reader]:
    """Readers of folders of Transformers, and of a run; writes the folders."""
    from jaxnlp.convert.folders import read_tensors
    from jaxnlp.convert.pretrained_decoder import read_decoder
    from jaxnlp.convert.pretrained_encoder import read_pretrained
    from jaxnlp.convert.pretrained_encoder_decoder import read_encoder_decoder
    from jaxnlp.convert.pretrained_image_encoder import read_image_encoder
    from jaxnlp.text.tokenizer_files import read_decoder_tokenizer, read_text_to_text_tokenizer, read_tokenizer
    from tests import decoder_folders, encoder_decoder_folders, encoder_folders, image_folders, marian_folders

    found: list[Reader] = []

    def add(name: str, folder: Path, file: str, read: Callable[[Path], Any], seconds: float = 2.0) -> None:
        own = root / f"own-{len(found)}"
        shutil.copytree(folder, own)
        found.append(Reader(name, file, [(folder / file).read_bytes()], lambda p: read(p.parent), own, seconds))

    for kind in ("bert", "roberta"):
        folder = root / kind
        tokenizer = encoder_folders.save_tokenizer(kind, folder)
        encoder_folders.make_model(kind, vocab_size=len(tokenizer)).save_pretrained(folder)
        add(f"{kind} config.json", folder, "config.json", read_pretrained)
        add(f"{kind} tokenizer.json", folder, "tokenizer.json", read_tokenizer)
        add(f"{kind} tokenizer_config.json", folder, "tokenizer_config.json", read_tokenizer)
    folder = root / "bert"
    add("safetensors", folder, "model.safetensors", lambda path: read_tensors(path, str(path)))
    add("safetensors of a model", folder, "model.safetensors", read_pretrained)
    words = root / "words"
    words.mkdir()
    (words / "vocab.txt").write_text(
        "\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "##s", "猫"]) + "\n"
    )
    (words / "tokenizer_config.json").write_text('{"tokenizer_class": "BertTokenizer"}')
    add("vocab.txt", words, "vocab.txt", read_tokenizer)
    parts = root / "parts"
    shutil.copytree(folder, parts)
    (parts / "model.safetensors").rename(parts / "model-1.safetensors")
    names = [*read_tensors(folder, str(folder))]
    (parts / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {}, "weight_map": dict.fromkeys(names, "model-1.safetensors")})
    )
    add("safetensors index", parts, "model.safetensors.index.json", lambda path: read_tensors(path, str(path)))
    for kind in ("gpt2", "llama"):
        folder = root / kind
        tokenizer = decoder_folders.save_tokenizer(folder, kind)
        decoder_folders.make_model(model_type=kind, vocab_size=len(tokenizer)).save_pretrained(folder)
        add(f"{kind} config.json", folder, "config.json", read_decoder)
        add(f"{kind} tokenizer.json", folder, "tokenizer.json", read_decoder_tokenizer)
    folder = root / "t5"
    tokenizer = encoder_decoder_folders.save_tokenizer(folder)
    encoder_decoder_folders.make_model(vocab_size=len(tokenizer)).save_pretrained(folder)
    add("t5 config.json", folder, "config.json", read_encoder_decoder)
    add("t5 tokenizer.json", folder, "tokenizer.json", read_text_to_text_tokenizer)
    add("t5 generation_config.json", folder, "generation_config.json", read_encoder_decoder)
    folder = root / "marian"
    tokenizer = marian_folders.save_tokenizer(folder)
    marian_folders.make_model(len(tokenizer)).save_pretrained(folder)
    add("marian vocab.json", folder, "vocab.json", read_encoder_decoder)
    add("sentencepiece", folder, "source.spm", lambda path: read_sentencepiece(path / "source.spm"))
    folder = root / "vit"
    image_folders.write_folder(folder)
    add("vit config.json", folder, "config.json", read_image_encoder)
    add("preprocessor_config.json", folder, "preprocessor_config.json", read_image_encoder)
    return found


def run_readers(root: Path, run: Path) -> list[Reader]:
    """Readers of each file of a run's folder, which `jaxnlp.load_run` reads."""
    from jaxnlp.runs import load_run

    found = []
    files = [file for file in sorted(run.rglob("*")) if file.is_file() and file.name not in ("report.html", ".lock")]
    used = [file for file in files if file.suffix == ".json" or "checkpoints" in file.parts]
    for number, file in enumerate(used):
        name = str(file.relative_to(run))
        own = root / f"run-{number}"
        shutil.copytree(run, own)
        up = len(Path(name).parts) - 1
        read = lambda path, up=up: load_run(path.parents[up])  # noqa: E731
        found.append(Reader(f"run: {name}", name, [file.read_bytes()], read, own, 10.0))
    return found
