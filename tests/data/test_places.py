"""A run may continue where its files have moved, and not where their contents have changed: see `DataConfig.places`."""

import json

import numpy as np
import pytest

from data.byte_pair_text import BytePairText
from data.character_text import CharacterText
from data.image_pixels import ImagePixels
from data.images import Images
from data.masked_text import MaskedText
from data.span_corruption import CorruptedText
from data.squad import QuestionContexts
from data.tagged_sentences import TaggedSentences
from data.text_table import TextTable
from data.texts_of_table import TextsOfTable
from data.translation import ParallelText
from data.treebank import Treebank
from data.word_text import WordText
from jaxnlp.saving.serialization import processor_to_json

WORDS = ("the", "red", "house", "stands", "by", "a", "small", "lake", "and", "two", "dogs", "run", "after", "ball")
TREE = "1\t{}\t_\tNOUN\tNN\t_\t0\troot\t_\t_\n2\truns\t_\tVERB\tVB\t_\t1\tacl\t_\t_\n\n"


def lines(seed, count=60):
    draw = np.random.default_rng(seed)
    return [" ".join(draw.choice(WORDS, size=draw.integers(4, 9))) for _ in range(count)]


def table(seed):
    return "text,label\n" + "".join(f"{line},{'ab'[number % 2]}\n" for number, line in enumerate(lines(seed)))


def questions(seed):
    rows = [
        {"question": f"who is {number}", "context": line, "answers": [line.split()[1]]}
        for number, line in enumerate(lines(seed))
    ]
    return "".join(json.dumps(row) + "\n" for row in rows)


def documents(seed):
    return "\n\n".join("\n".join(lines(seed + number, 6)) for number in range(12))


def pairs(seed):
    return [f"{line}\t{line}" for line in lines(seed)]


def columns(seed):
    return "\n\n".join("\n".join(f"{word} B-{word[0].upper()}" for word in line.split()) for line in lines(seed))


def trees(seed):
    return "".join(TREE.format(f"{line.split()[0]}{number}") for number, line in enumerate(lines(seed)))


SHORT = {"source": "text_file", "vocabulary_size": 300, "sequence_length": 8}
CASES = {
    "characters": (CharacterText, {"source": "text_file"}, {"path": lines}),
    "byte pairs": (
        BytePairText,
        {"source": "text_file", "vocabulary_size": 300, "sequence_length": 8},
        {"path": lines},
    ),
    "words": (WordText, {"source": "text_file", "minimum_count": 1, "batch_size": 2}, {"path": lines}),
    "masked": (MaskedText, {"source": "text_file", "vocabulary_size": 100}, {"path": documents}),
    "spans": (CorruptedText, {"vocabulary_size": 400}, {"files": lines}),
    "pairs": (ParallelText, {"vocabulary_size": 400}, dict.fromkeys(("train", "validation", "test"), pairs)),
    "table": (TextTable, {}, dict.fromkeys(("path", "validation_path", "test_path"), table)),
    "texts": (TextsOfTable, {}, dict.fromkeys(("path", "validation_path", "unlabelled"), table)),
    "questions": (QuestionContexts, {"source": "files"}, dict.fromkeys(("train", "validation"), questions)),
    "tags": (TaggedSentences, {"source": "files"}, dict.fromkeys(("train", "validation"), columns)),
    "trees": (Treebank, {"source": "files"}, dict.fromkeys(("train", "validation"), trees)),
}
"""The class, its fields, and for each place the content of its file, as a function of a seed."""
SUFFIXES = {"table": ".csv", "texts": ".csv", "questions": ".jsonl", "trees": ".conllu"}


def written(folder, case, changed=""):
    """The config of a case, with files in a folder. Args: changed: the place whose content differs."""
    of, fields, places = CASES[case]
    folder.mkdir()
    paths = {}
    for number, (name, content) in enumerate(places.items()):
        text, path = content(10 * number + 5 * (name == changed)), folder / f"{name}{SUFFIXES.get(case, '.txt')}"
        path.write_text(text if isinstance(text, str) else "".join(f"{line}\n" for line in text))
        paths[name] = (str(path),) if of in (CorruptedText, ParallelText) else str(path)
    return of(**fields, **paths)


def identity(config):
    """What tells whether the data of a run has changed."""
    corpus = config.load(0)
    return corpus.fingerprint, processor_to_json(corpus.processor)


@pytest.mark.parametrize("case", CASES)
def test_only_the_contents_of_files_tell_whether_the_data_has_changed(case, tmp_path):
    places = CASES[case][2]
    assert {*places} <= {*CASES[case][0].places()}
    found = [identity(written(tmp_path / name, case, name)) for name in places]
    found.append(identity(written(tmp_path / "here", case)))
    assert identity(written(tmp_path / "there", case)) == found[-1]
    assert all(one not in found[:number] for number, one in enumerate(found))


@pytest.mark.parametrize("case", ["table", "pairs"])
def test_rows_that_move_from_validation_to_test_are_a_change(case, tmp_path):
    config = written(tmp_path / "before", case)
    validation, test = (
        next(path for path in (tmp_path / "before").iterdir() if path.name.startswith(name))
        for name in ("validation", "test")
    )
    before, rows = identity(config), validation.read_text().splitlines(keepends=True)
    header, *others = test.read_text().splitlines(keepends=True)
    validation.write_text("".join(rows[:-5]))
    test.write_text("".join([header, *rows[-5:], *others] if case == "table" else [*rows[-5:], header, *others]))
    assert identity(config) != before


@pytest.mark.parametrize("of", [Images, ImagePixels])
def test_images_that_move_from_validation_to_training_are_a_change(of, tmp_path):
    draw = np.random.default_rng(0)
    images, labels = (draw.integers(0, 2, (40, 4, 4)) * 255).astype(np.uint8), np.arange(40) % 2
    found = []
    for train in (30, 24):
        paths = tmp_path / f"train{train}.npz", tmp_path / f"validation{train}.npz"
        for path, part in zip(paths, (slice(train), slice(train, None)), strict=True):
            np.savez(path, images=images[part], labels=labels[part])
        config = of(source="files", path=str(paths[0]), validation_path=str(paths[1]), batch_size=8)
        found.append(identity(config))
    assert found[0] != found[1]


@pytest.mark.parametrize("case", [case for case in CASES if case != "words"])  # streams are made whole
def test_a_process_that_makes_some_rows_of_a_batch_makes_those_of_the_whole(case, tmp_path):
    batch = next(iter(written(tmp_path / "here", case).load(0).train))
    some = np.array([0, batch.size - 1])
    for name, rows in batch.rows(some).items():
        np.testing.assert_array_equal(rows, batch.whole[name][some])
