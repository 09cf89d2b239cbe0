import gzip

import numpy as np
import pytest

from data import DataError, Split
from data.readers.sentence_pairs import held_out, read_pairs, read_pairs_or_sources
from jaxnlp.text.translation import SentencePair


def pairs(*columns):
    return tuple(SentencePair(source, reference) for source, reference in columns)


@pytest.fixture
def files(tmp_path):
    first, second = tmp_path / "a.en", tmp_path / "a.de"
    first.write_text("one\n two \u2028 x \nthree", encoding="utf-8")
    second.write_text("eins\nzwei\ndrei\n", encoding="utf-8")
    return [first, second]


def test_lines_of_two_files_belong_together(files):
    assert read_pairs(files)[0] == pairs(("one", "eins"), ("two \u2028 x", "zwei"), ("three", "drei"))
    assert read_pairs(files, reverse=True)[0][0] == SentencePair("eins", "one")


def test_a_file_with_tabs_has_sources_and_references(tmp_path):
    path = tmp_path / "a.tsv.gz"
    path.write_bytes(gzip.compress(b"one \teins\tCC-BY\ntwo\tzwei\n"))
    assert read_pairs([path])[0] == read_pairs_or_sources([path])[0] == pairs(("one", "eins"), ("two", "zwei"))
    assert read_pairs([path], reverse=True)[0] == pairs(("eins", "one"), ("zwei", "two"))


def test_columns_that_are_not_read_are_shown_with_those_that_are(tmp_path, caplog):
    path = tmp_path / "tatoeba.tsv"
    path.write_text("1\tone\t77\teins\n2\ttwo\t78\tzwei\n", encoding="utf-8")
    read_pairs([path])
    assert "2 of 2, the first in line 1; the first two are read, such as '1' and 'one'" in caplog.text


def test_two_tables_and_the_same_file_twice_are_refused(files, tmp_path):
    with pytest.raises(DataError, match="is given twice"):
        read_pairs([files[0], tmp_path / "." / files[0].name])
    for path in files:
        path.write_text("one\teins\n\ntwo\tzwei\n", encoding="utf-8")
    with pytest.raises(DataError, match="validation with --data"):
        read_pairs(files)
    files[1].write_text("eins\n\nzwei\t!\n", encoding="utf-8")
    assert len(read_pairs(files)[0]) == 2


@pytest.mark.parametrize("line", ["en,de", '{"translation": {"en": "one", "de": "eins"}}'])
def test_the_error_about_csv_and_json_says_what_is_read(tmp_path, line):
    path = tmp_path / "pairs"
    path.write_text(line + "\n", encoding="utf-8")
    with pytest.raises(DataError, match="convert CSV and JSON to lines with a tab, or give two files"):
        read_pairs([path])


def test_a_file_without_tabs_has_only_sources(files):
    assert read_pairs_or_sources([files[1]])[0] == tuple(map(SentencePair, ("eins", "zwei", "drei")))


def test_a_missing_tab_is_named_where_other_lines_have_one(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text("no tab here\nHello\tHallo\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"a\.tsv, line 1: expected two sentences with a tab between them, got 'no tab"):
        read_pairs_or_sources([path])


def test_blank_lines_among_sources_are_skipped_counted_and_keep_their_places(tmp_path, caplog):
    path = tmp_path / "a.txt"
    path.write_text("one\n\n \u200b\ntwo\n", encoding="utf-8")
    found, source, _ = read_pairs_or_sources([path])
    assert found == (SentencePair("one"), SentencePair("two"))
    assert [pair.line for pair in found] == [1, 4]
    assert caplog.messages == [f"{path}: lines without text, which are skipped: 2 of 4, the first in line 2"]
    assert Split(examples=found, source=source).in_rows(["eins", "zwei"], "") == ["eins", "", "", "zwei"]
    path.write_text("\n\u200b\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"a.txt: all 2 lines are without text"):
        read_pairs_or_sources([path])


def test_a_carriage_return_within_a_line_is_a_blank(files):
    files[0].write_bytes(b"one\rmore\r\ntwo\r\nthree\r\n")
    assert [pair.source for pair in read_pairs(files)[0]] == ["one more", "two", "three"]
    assert [pair.source for pair in read_pairs_or_sources([files[0]])[0]] == ["one more", "two", "three"]


def test_unequal_files_are_named_with_both_counts_and_the_first_line_without_a_partner(files):
    files[1].write_text("eins\nzwei\ndrei\nvier\nfünf\n", encoding="utf-8")
    message = r"a.en has 3 lines, .*a.de has 5; line 4 of .*a.de has no partner: 'vier'"
    with pytest.raises(DataError, match=message):
        read_pairs(files)
    with pytest.raises(DataError, match=r"a.de has 5 lines, .*a.en has 3; line 4 of .*a.de has no partner: 'vier'"):
        read_pairs(files[::-1])


@pytest.mark.parametrize("reverse", [False, True])
def test_pairs_with_a_blank_sentence_are_skipped_with_both_lines(files, caplog, reverse):
    files[1].write_text("eins\n\u200b\ndrei\n\n\n", encoding="utf-8")
    found, source, _ = read_pairs(files, reverse=reverse)
    expected = [("one", "eins"), ("three", "drei")]
    assert found == pairs(*(pair[::-1] if reverse else pair for pair in expected))
    assert [pair.line for pair in found] == [1, 3]
    assert (source.indices, len(source.names)) == ([0, 2], 5)  # blank lines at the end need no partner
    assert caplog.messages == [
        f"{files[0]} and {files[1]}: pairs without text, which are skipped: 3 of 5, the first in line 2"
    ]


def test_lines_of_a_file_with_tabs_that_lack_a_sentence_are_skipped(tmp_path, caplog):
    path = tmp_path / "a.tsv"
    path.write_text("one\teins\n\tzwei\n\nthree\t\nfour\tvier\n")
    assert read_pairs_or_sources([path])[0] == pairs(("one", "eins"), ("four", "vier"))
    assert caplog.messages == [f"{path}: pairs without text, which are not scored: 3 of 5, the first in line 2"]
    assert read_pairs_or_sources([path]).alone == (SentencePair("three"),)


def test_other_encodings_are_read(files):
    files[0].write_bytes("caf\xe9\n\u20ac\nx\n".encode("cp1252"))
    assert [pair.source for pair in read_pairs(files, encoding="cp1252")[0]] == ["caf\xe9", "\u20ac", "x"]


def test_invalid_utf8_is_named_with_file_and_line(files):
    files[0].write_bytes(b"one\ntwo\nthr\xe9\n")
    with pytest.raises(DataError, match=r"a.en, line 3, offset 11: byte 0xe9 is not UTF-8"):
        read_pairs(files)


def test_a_line_that_is_no_pair_is_named(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text("one\teins\ntwo zwei\n")
    with pytest.raises(
        DataError, match=r"a.tsv, line 2: expected two sentences with a tab between them, got 'two zwei"
    ):
        read_pairs([path])


@pytest.mark.parametrize(
    ("lines", "count"),
    [
        (['"one"\t"eins"', '"two"\t"zwei"'], "2 of 2, the first in line 1"),
        (["one\teins", '"say ""one"""\t"sag ""eins"""', ""], "1 of 2, the first in line 2"),
        (['"one"\teins', '"two" and "three"\t"zwei"'], None),
        (['say "one"\tsag "eins"', '""\t""one""'], None),
    ],
)
def test_quotes_of_spreadsheets_are_reported(tmp_path, caplog, lines, count):
    path = tmp_path / "pairs.tsv"
    path.write_text("\n".join(lines))
    read_pairs([path])
    found = [record.getMessage() for record in caplog.records if "quotes" in record.getMessage()]
    assert len(found) == (count is not None)
    assert not found or f"pairs.tsv: lines with a sentence between quotes: {count}; quotes are read" in found[0]


@pytest.mark.parametrize(
    ("first", "read_as"),
    [
        ("source\ttarget", "header"),
        ("English\tGerman", "header"),
        ("id\tde_DE\tEnglish", "pair"),
        ("German\ten", "header"),
        ("en\tde_DE", "pair"),
        ("EN \tDE", "pair"),
        ("Go.\tVa !", ""),
    ],
)
def test_a_first_line_of_names_is_a_header_and_short_words_may_be_codes_or_a_pair(tmp_path, caplog, first, read_as):
    path = tmp_path / "pairs.tsv"
    path.write_text(f"{first}\none\teins\n")
    found, source, _ = read_pairs([path])
    assert Split(examples=found, source=source).in_rows([one.source for one in found], "")[-1] == "one"
    assert len(found) == 2 - (read_as == "header")
    assert [found[-1].line, len(source.names)] == [2, 2]
    assert len(caplog.messages) <= 2
    assert (f"pairs.tsv: line 1 is read as a {read_as}: " in caplog.text) == bool(read_as)
    assert "without text" not in caplog.text
    path.write_text(f"\n{first}\none\teins\n")
    assert len(read_pairs([path])[0]) == 2


def test_the_header_of_pairs_that_were_joined_to_others_is_no_pair(tmp_path, caplog):
    path = tmp_path / "pairs.tsv"
    path.write_text("English\tGerman\none\teins\n\ufeffEnglish\tGerman\ntwo\tzwei\n", encoding="utf-8")
    found, source, _ = read_pairs([path])
    assert [(one.source, one.line) for one in found] == [("one", 2), ("two", 4)]
    assert len(source.names) == 4
    repeated = "rows that repeat the header, which are read as blank: 1 of 3, the first in line 3"
    assert f"{path}: {repeated}" in caplog.messages


def test_two_files_are_scored_as_in_training_and_three_are_refused(files):
    assert read_pairs_or_sources(files)[0] == read_pairs(files)[0]
    assert read_pairs_or_sources(files, reverse=True)[0] == read_pairs(files, reverse=True)[0]
    with pytest.raises(DataError, match="give one file, or one of sources and one of targets, got "):
        read_pairs_or_sources([*files, files[0]])


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"none.en"):
        read_pairs([tmp_path / "none.en", tmp_path / "none.de"])


def test_held_out_pairs_share_no_source_with_training_and_do_not_depend_on_the_order():
    found = [SentencePair(f"s{n % 40}", f"t{n}") for n in range(100)]
    train, held = held_out(found, 0.25)
    assert sorted([*train, *held]) == list(range(100))
    sources = {found[n].source for n in held}
    assert len(sources) == 10
    assert not sources & {found[n].source for n in train}
    assert {found[::-1][n].source for n in held_out(found[::-1], 0.25)[1]} == sources
    assert len(held_out(found[:2], 0.99)[1]) == 1
    with pytest.raises(DataError, match="expected at least two distinct sources, for training and validation, got 1"):
        held_out(found[:1], 0.5)


def test_held_out_pairs_may_share_no_target_with_training_either():
    found = [SentencePair(f"s{n}", f"t{n // 2}") for n in range(40)] + [SentencePair("s0", "t9")]
    train, held = held_out(found, 0.25, separate_targets=True)
    assert sorted([*train, *held]) == list(range(41))
    assert len({found[n].source for n in held}) == 10
    for side in ("source", "reference"):
        assert not {getattr(found[n], side) for n in held} & {getattr(found[n], side) for n in train}
    order = np.random.default_rng(0).permutation(41)
    again = held_out([found[n] for n in order], 0.25, separate_targets=True)[1]
    assert {order[n] for n in again} == set(held)
    with pytest.raises(DataError, match=r"groups of pairs that share no source and no target, .* got 1"):
        held_out([SentencePair(f"s{n}", "t") for n in range(9)], 0.5, separate_targets=True)


def test_the_columns_and_quotes_of_a_public_data_set_need_no_warning(tmp_path, caplog):
    path = tmp_path / "pairs.tsv"
    path.write_text('one\teins\tCC-BY\n"two"\t"zwei"\tCC-BY\n')
    read_pairs([path], known=True)
    assert not caplog.messages
    read_pairs([path])
    assert [sum(word in line for line in caplog.messages) for word in ("more than two columns", "quotes")] == [1, 1]


@pytest.mark.parametrize("known", [False, True])
def test_sentences_that_are_names_of_missing_values_are_counted_but_for_public_data(tmp_path, caplog, known):
    (tmp_path / "pairs.tsv").write_text("one\teins\nnan\tNaN\n")
    assert len(read_pairs([tmp_path / "pairs.tsv"], known=known).pairs) == 2
    shown = "2 texts are names of missing values, the first 'nan' in line 2"
    assert [shown in line for line in caplog.messages] == [True] * (not known)


def test_a_single_line_with_a_further_column_is_named_unless_it_is_blank(tmp_path, caplog):
    path = tmp_path / "pairs.tsv"
    path.write_text("one\teins\t \ntwo\tzwei\nthree,\tfour\tdrei, vier\nfive\tfünf\n", encoding="utf-8")
    read_pairs([path])
    [message] = caplog.messages
    assert all(part in message for part in ("1 of 4", "line 3", "'three,' and 'four'"))


def test_two_tables_that_are_read_as_lines_are_reported(tmp_path, caplog):
    paths = [tmp_path / "en.csv", tmp_path / "de.csv"]
    for path in paths:
        path.write_text('text\n"one, two"\n')
    assert read_pairs(paths)[0][1] == SentencePair('"one, two"', '"one, two"')
    assert [message.split(":")[0] for message in caplog.messages] == [str(paths[0])]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("x.csv", '"cat","tac"\n"dog, x","god"\n'),
        ("x.jsonl", '{"source": "cat", "target": "tac"}\n'),
        ("x.txt", '{"source": "cat", "target": "tac"}\n{"source": "dog", "target": "god"}\n'),
        ("x.txt", '[{"source": "cat"}]\n'),
    ],
)
def test_a_table_or_json_without_tabs_is_not_read_as_sources(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=rf"{name}: a table or JSON without tabs; expected two sentences with a tab"):
        read_pairs_or_sources([tmp_path / name])
    (tmp_path / "x.tsv").write_text("cat\ndog, x\n")
    assert [pair.source for pair in read_pairs_or_sources([tmp_path / "x.tsv"])[0]] == ["cat", "dog, x"]
