import dataclasses

import pytest

from data import DataConfig, DataError
from data.character_text import CharacterText
from data.masked_text import MaskedText
from data.readers.file_options import SplitFiles, TableFiles, TextFiles
from data.span_corruption import CorruptedText
from data.squad import QuestionContexts
from data.tagged_sentences import TaggedSentences
from data.text_table import TextTable
from data.translation import ParallelText
from data.treebank import Treebank
from data.word_text import WordText
from jaxnlp.input_files.tables import Dialect


def test_options_say_how_tables_are_written():
    assert TableFiles(encoding="cp1252", delimiter="\\t").dialect == Dialect(None, "\t", "auto", "cp1252")
    assert TableFiles().dialect == Dialect()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"delimiter": ";;"}, "data.delimiter must be one character, but not a quote or a line break, got ';;'"),
        ({"delimiter": '"'}, "data.delimiter must be one character"),
        ({"delimiter": ""}, "data.delimiter must be one character"),
        ({"encoding": "windows"}, "data.encoding must be an encoding such as utf-8, cp1252, .*, got 'windows'"),
    ],
)
def test_options_that_cannot_be_are_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        TableFiles(**fields)


@pytest.mark.parametrize("kind", [TextFiles, TableFiles])
def test_options_apply_only_to_files_of_the_users(kind):
    given = {"encoding": "latin1", "delimiter": ";", "quotes": "none"}
    of_all_data = {field.name for field in dataclasses.fields(DataConfig)}
    for name in {field.name for field in dataclasses.fields(kind)} - of_all_data:
        config = kind(**{name: given[name]})
        with pytest.raises(ValueError, match=rf"data.{name} applies only to data.source files"):
            config.format_only_if(False, "data.source files")
        config.format_only_if(True, "data.source files")


WORD = "caf\xe9 \u20ac\u201d"
LINES = "".join(f"{WORD} {number} of the text\n" for number in range(40))
TAGGED = "".join(f"caf\xe9\u201d\tB-X\nand{number}\tO\n\n" for number in range(20))
TREES = "".join(
    f"1\tcaf\xe9\u201d\t_\tX\t_\t_\t0\troot\t_\t_\n2\tw{n}\t_\tY\t_\t_\t1\tobj\t_\t_\n\n" for n in range(20)
)
TABLE = "text,label\n" + "".join(f"{WORD} {number},{'ab'[number % 2]}\n" for number in range(40))
SUBWORDS = {"subwords": "characters", "lengths": (64,), "minimum_count": 1}


@pytest.mark.parametrize(
    ("kind", "option", "content", "fields"),
    [
        (CharacterText, "path", LINES, {"source": "text_file", "sequence_length": 8}),
        (WordText, "path", LINES, {"source": "text_file", "sequence_length": 10, "batch_size": 2}),
        (MaskedText, "path", LINES.replace("9 of", "9 of\n\n"), {"source": "text_file", "vocabulary_size": 50}),
        (CorruptedText, "files", LINES, {"corruption_rate": 0.1, **SUBWORDS}),
        (ParallelText, "train", LINES.replace("\n", "\tx\n"), SUBWORDS),
        (TaggedSentences, "train", TAGGED, {"source": "files", "batch_size": 2}),
        (Treebank, "train", TREES, {"source": "files"}),
        (TextTable, "path", TABLE, {"batch_size": 2}),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
def test_all_files_of_users_are_read_in_the_given_encoding(tmp_path, kind, option, content, fields):
    path = tmp_path / "mine.csv"
    path.write_bytes(content.encode("cp1252"))
    given = (
        (str(path),) if option in ("files", "train") and issubclass(kind, CorruptedText | ParallelText) else str(path)
    )
    with pytest.raises(DataError, match=r"is not UTF-8; .* --data.encoding cp1252, or convert it"):
        kind(**{option: given}, **fields).load(0)
    assert kind(**{option: given}, **fields, encoding="cp1252").load(0).description


@pytest.mark.parametrize(
    "kind", [CharacterText, WordText, MaskedText, CorruptedText, TaggedSentences, Treebank, QuestionContexts]
)
def test_a_file_to_score_may_have_another_encoding_whatever_the_training_data_are(kind):
    config = kind(data_set="wiki") if kind is CorruptedText else kind()
    assert config.in_format({"encoding": "cp1252"}).encoding == "cp1252"
    assert config.in_format({}) == config
    with pytest.raises(DataError, match=f"--data.quotes does not apply to this run's data, {kind.__name__}; remove it"):
        config.in_format({"quotes": "none"})


def test_known_tables_have_one_format():
    assert TextTable(path="x.csv").in_format({"encoding": "cp1252"}).encoding == "cp1252"
    with pytest.raises(ValueError, match=r"data.encoding applies only to data.source table"):
        TextTable(source="mr").in_format({"encoding": "cp1252"})


def test_every_table_of_several_parts_is_read_as_it_is_written():
    config = TextTable(parts=("mine",), tables=("mine=mine.csv",), encoding="cp1252", delimiter=";")
    assert config.dialect == Dialect(None, ";", "auto", "cp1252")
    with pytest.raises(ValueError, match=r"data.encoding applies only to"):
        TextTable(parts=("sst",), encoding="cp1252")


def files(train, validation=None, test=None):
    return SplitFiles(train=train, validation=validation, test=test)


def test_sentences_that_an_earlier_run_has_learned_are_not_scored():
    files("a").check_after(files("a"))  # both hold out the same tenth
    files("a", "b").check_after(files("a"))
    files("a", "b", "c").check_after(files("d", "a", "a"))
    files("a").check_after(files("d", "b"))
    for new, earlier, split in (
        (files("a"), files("a", "b"), "validation"),
        (files("b", "x/../a"), files("a"), "validation"),
        (files("b", "c", "a"), files("a", "c"), "test"),
    ):
        with pytest.raises(DataError, match=f"which has sentences of the {split} split; give another file with --data"):
            new.check_after(earlier)
