import gzip

import pytest

from data import DataError
from data.readers.tagged_files import TagColumns, check_labels, read_tagged
from jaxnlp.text.conllu import written


@pytest.fixture
def write(tmp_path):
    def write(text, name="x.txt"):
        path = tmp_path / name
        path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
        return path

    return write


def test_columns_between_tabs_or_blanks_are_read(write):
    text = "-DOCSTART- -X- O\n\nAnn NNP B-PER\nsees VBZ O\n\n\nRome NNP B-LOC\n"
    for path in (write(text), write(text.replace(" ", "\t")), write(text, "x.conll.gz")):
        first, second = read_tagged(path).sentences
        assert (first.line, first.number, first.words, first.labels) == (3, 1, ("Ann", "sees"), ("B-PER", "O"))
        assert (second.line, second.number, second.words, second.labels) == (7, 2, ("Rome",), ("B-LOC",))
    middle = read_tagged(write(text), columns=TagColumns(0, 1)).sentences
    assert [one.labels for one in middle] == [("NNP", "VBZ"), ("NNP",)]
    swapped = read_tagged(write(text), columns=TagColumns(2, 0)).sentences
    assert swapped[0].words == ("B-PER", "O")


def test_words_with_blanks_need_tabs_and_positions_are_taken_off(write):
    assert read_tagged(write("New York\tB-LOC\n")).sentences[0].words == ("New York",)
    path = write("科0\tO\n技1\tB-ORG.NAM\nS10\tO\n310\tO\n20\tO\n")
    found = read_tagged(path, columns=TagColumns(has_index=True)).sentences
    assert (found[0].words, found[0].labels) == (("科", "技", "S", "3", "2"), ("O", "B-ORG.NAM", "O", "O", "O"))


def test_files_without_labels_are_read_where_labels_are_optional(write):
    path = write("Ann\nsees\n\nRome\n")
    assert [one.labels for one in read_tagged(path, labelled=None).sentences] == [None, None]
    index = write("1 Ann\n2 sees\n", "y.txt")
    assert [one.labels for one in read_tagged(index, columns=TagColumns(1), labelled=None).sentences] == [None]
    with pytest.raises(
        DataError, match=r"expected a label for each word, got none; write tabs between the columns, not"
    ):
        read_tagged(write("Ann,B-PER\nsees,O\n", "commas.txt"))
    with pytest.raises(DataError, match=r"line 1 \(sentence 1\): expected a label for each word, got none$"):
        read_tagged(path)


def test_json_is_known_by_the_name_or_the_text_of_its_file(write):
    line = '{"text": "Ann sleeps", "label": [[0, 3, "PER"]]}'
    for text, name in (
        (line, "x.jsonl"),
        (f"[{line}]", "x.json.gz"),
        (f"\n{line}\n{line}\n", "all.jsonl1"),
        (f" [\n  {line}\n]", "export"),
    ):
        assert read_tagged(write(text, name)).sentences[0].labels == ("B-PER", "O")
    assert read_tagged(write("{ O\n} O\n")).sentences[0].words == ("{", "}")
    assert read_tagged(write("[ O\n{ O\n")).sentences[0].words == ("[", "{")


def test_sentences_that_are_skipped_are_counted(write):
    file = read_tagged(write('{"text": " "}\n{"text": "a"}\n{"words": []}\n', "x.json"), labelled=None)
    assert [one.number for one in file.sentences] == [2]
    assert file.counts.notes() == ("2 sentences are blank and skipped (first: sentence 1, line 1)",)
    message = r"x.json has no sentences; 1 sentence is blank and skipped \(first: sentence 1, line 1\)"
    with pytest.raises(DataError, match=message):
        read_tagged(write('{"text": " "}', "x.json"))


def test_conllu_gives_universal_tags_or_those_of_the_treebank(write):
    rows = [("1-2", "Don't", "_\t_"), ("1", "Do", "AUX\tVBP"), ("2", "n't", "PART\tRB"), ("3", "go", "VERB\tVB")]
    text = "# sent_id = a\n" + "".join(f"{i}\t{word}\t_\t{tags}" + "\t_" * 5 + "\n" for i, word, tags in rows) + "\n"
    (sentence,) = read_tagged(write(text, "x.conllu")).sentences
    assert (sentence.words, sentence.labels) == (("Do", "n't", "go"), ("AUX", "PART", "VERB"))
    (sentence,) = read_tagged(write(text, "x.conllu"), columns=TagColumns(tags="xpos")).sentences
    assert sentence.labels == ("VBP", "RB", "VB")
    cycle = text.replace("AUX\tVBP" + "\t_" * 2, "AUX\tVBP\t_\t1")
    assert cycle != text
    assert read_tagged(write(cycle, "x.conllu")).sentences[0].words == ("Do", "n't", "go")
    file = read_tagged(write(f"# sent_id = empty\n\n{text}", "x.conllu"))
    assert [one.words for one in file.sentences] == [("Do", "n't", "go")]
    assert file.counts.notes()[0].startswith("1 sentence is blank and skipped (first: ")
    with pytest.raises(DataError, match="expected CoNLL-U, 10 columns with tabs between them, got 2"):
        read_tagged(write("1\tx\n", "y.conllu"))


def test_tags_of_several_columns_are_a_tuple_of_each_word(write):
    rows = [("1-2", "Don't", "_\t_\t_"), ("1", "Do", "AUX\tVBP\tMood=Ind"), ("2", "n't", "PART\tRB\t_")]
    text = "".join(f"{i}\t{word}\t_\t{tags}" + "\t_" * 4 + "\n" for i, word, tags in rows) + "\n"
    several = TagColumns(tags=("xpos", "feats"))
    (sentence,) = read_tagged(write(text, "x.conllu"), columns=several).sentences
    assert sentence.labels == (("VBP", "Mood=Ind"), ("RB", "_"))
    assert written([sentence.source]) == text
    without = write(text.replace("Mood=Ind", "_"), "x.conllu")
    read = read_tagged(without, columns=several, labelled=None)
    assert read.sentences[0].labels is None
    assert read.counts.notes() == ("1 sentence is without feats of each word (first: sentence 1, line 1)",)
    with pytest.raises(DataError, match=r"got none; every word needs xpos, feats: choose those that .* --data\.tags"):
        read_tagged(without, columns=several)
    with pytest.raises(DataError, match=r"x\.txt: only CoNLL-U has xpos, feats; give a \.conllu file"):
        read_tagged(write("a\tO\n"), columns=several)


@pytest.mark.parametrize(
    ("text", "name", "message"),
    [
        ("Ann O\nsees\n", "x.txt", r"x.txt, line 2 \(sentence 1, word 2\): expected 2 columns between spaces, as in "
         "line 1, got 1: 'sees'"),
        ("\tO\n", "x.txt", r"line 1 \(sentence 1, word 1\): expected text in column 0, where 0 is the first column"),
        ("\n\n", "x.txt", "x.txt has no sentences"),
        ("tokens\tlabels\nAnn\tPROPN\n", "x.tsv", "x.tsv, line 1: a header, tokens labels; remove this line"),
        ("Ann\tPROPN\n\n\ufefftoken\tpos\n", "x.tsv", "x.tsv, line 3: a header, .*; remove this line"),
        ("Token\tPOS\nAnn\tPROPN\n", "x.tsv", "x.tsv, line 1: a header, Token POS; remove this line"),
    ],
)  # fmt: skip
def test_bad_input_is_named_by_file_line_and_sentence(write, text, name, message):
    with pytest.raises(DataError, match=message):
        read_tagged(write(text, name), labelled=None)


def test_labels_outside_the_scheme_are_named_by_their_line(write):
    path = write("Ann B-PER\n\nsees O\nRome S-LOC\n")
    file = read_tagged(path)
    check_labels(file, "bioes")
    message = (
        r"x.txt, line 4 \(sentence 2, word 2\): the label 'S-LOC' does not belong to the scheme bio: expected O, B-"
    )
    with pytest.raises(DataError, match=message):
        check_labels(file, "bio")


def test_labels_outside_the_scheme_are_named_by_their_line_also_where_a_line_is_no_word(write):
    path = write('\n{"words": ["a", "b"], "labels": ["O", "Q-X"]}\n', "x.json")
    with pytest.raises(DataError, match=r"x.json, line 2 \(sentence 1, word 2\): the label 'Q-X'"):
        check_labels(read_tagged(path), "bio")
    rows = ["# text = a b", "1-2\tab" + "\t_" * 8, "1\ta\t_\tX" + "\t_" * 6, "2\tb\t_\t" + "\t_" * 6]
    path = write("\n".join(rows) + "\n", "x.conllu")
    with pytest.raises(DataError, match=r"x.conllu, line 3 \(sentence 1\): expected a label for each word, got none"):
        read_tagged(path)


def test_sentences_without_a_label_of_each_word_stop_no_others(write):
    tagged, half = "1\ta\t_\tX" + "\t_" * 6, "1\ta\t_\tX" + "\t_" * 6 + "\n2\tb\t_" + "\t_" * 7
    untagged = "1\tc\t_" + "\t_" * 7
    file = read_tagged(write("\n\n".join([tagged, half, untagged, tagged]) + "\n", "x.conllu"))
    assert [(one.number, one.labels) for one in file.sentences] == [(1, ("X",)), (4, ("X",))]
    note = "2 sentences are without a label of each word and skipped (first: sentence 2, line 3)"
    assert file.counts.notes() == (note,)
    rows = '{"words": ["a"], "labels": ["O"]}\n{"words": ["b"]}'
    file = read_tagged(write(rows, "x.json"), labelled=None)
    assert [one.words for one in file.sentences] == [("a",)]
    assert [one.words for one in file.unlabelled] == [("b",)]
    assert file.counts.notes()[0].startswith("1 sentence is without a label of each word and not scored")
