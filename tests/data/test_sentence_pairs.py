import gzip

import pytest

from data import DataError
from data.sentence_pairs import held_out, read_pairs, read_pairs_or_sources
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
    assert read_pairs(files) == pairs(("one", "eins"), ("two \u2028 x", "zwei"), ("three", "drei"))
    assert read_pairs(files, reverse=True)[0] == SentencePair("eins", "one")


def test_a_file_with_tabs_has_sources_and_references(tmp_path):
    path = tmp_path / "a.tsv.gz"
    path.write_bytes(gzip.compress(b"one \teins\tCC-BY\ntwo\tzwei\n"))
    assert read_pairs([path]) == read_pairs_or_sources(path) == pairs(("one", "eins"), ("two", "zwei"))
    assert read_pairs([path], reverse=True) == pairs(("eins", "one"), ("zwei", "two"))


def test_a_file_without_tabs_has_only_sources(files):
    assert read_pairs_or_sources(files[1]) == tuple(map(SentencePair, ("eins", "zwei", "drei")))


def test_a_missing_tab_is_named_where_other_lines_have_one(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text("no tab here\nHello\tHallo\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"a\.tsv, line 1: expected two sentences with a tab between them, got 'no tab"):
        read_pairs_or_sources(path)


def test_an_empty_line_among_sources_is_named_without_a_word_of_a_translation(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("one\n\ntwo\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"a\.txt, line 2 is empty; remove it$"):
        read_pairs_or_sources(path)


def test_a_carriage_return_within_a_line_is_a_blank(files):
    files[0].write_bytes(b"one\rmore\r\ntwo\r\nthree\r\n")
    assert [pair.source for pair in read_pairs(files)] == ["one more", "two", "three"]
    assert [pair.source for pair in read_pairs_or_sources(files[0])] == ["one more", "two", "three"]


def test_unequal_files_are_named_with_both_counts_and_the_first_line_without_a_partner(files):
    files[1].write_text("eins\nzwei\ndrei\nvier\nfünf\n", encoding="utf-8")
    message = r"a.en has 3 lines, .*a.de has 5; line 4 of .*a.de has no partner: 'vier'"
    with pytest.raises(DataError, match=message):
        read_pairs(files)
    with pytest.raises(DataError, match=r"a.de has 5 lines, .*a.en has 3; line 4 of .*a.de has no partner: 'vier'"):
        read_pairs(files[::-1])


def test_an_extra_empty_line_at_the_end_of_one_file_is_a_line_without_a_partner(files):
    files[1].write_text("eins\nzwei\ndrei\n\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"a.en has 3 lines, .*a.de has 4; line 4 of .*a.de has no partner: ''"):
        read_pairs(files)


def test_an_empty_line_is_named_with_its_file(files):
    files[1].write_text("eins\n \ndrei\n")
    with pytest.raises(DataError, match=r"a.de, line 2 is empty; remove this line and its translation"):
        read_pairs(files)


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
    path.write_text("one\teins\n\tzwei\n")
    with pytest.raises(DataError, match=r"a.tsv, line 2: the first sentence is empty"):
        read_pairs([path])
    path.write_text("one\teins\ntwo\t\n")
    with pytest.raises(DataError, match=r"a.tsv, line 2: the second sentence is empty"):
        read_pairs([path])


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
    with pytest.raises(DataError, match="1 distinct sentences cannot be divided"):
        held_out(found[:1], 0.5)
