import dataclasses

import pytest

from jaxnlp.corpus import DataError
from jaxnlp.text.conllu import parse_conllu, sentence_of, tree_problem, universal, written

PARSED = """\
# newdoc id = a
# sent_id = a-1
# text = We don't see.
1\tWe\twe\tPRON\tPRP\tCase=Nom\t4\tnsubj\t4:nsubj\t_
2-3\tdon't\t_\t_\t_\t_\t_\t_\t_\t_
2\tdo\tdo\tAUX\tVBP\t_\t4\taux\t4:aux\t_
3\tn't\tnot\tPART\tRB\t_\t4\tadvmod\t4:advmod\t_
4\tsee\tsee\tVERB\tVB\t_\t0\troot\t0:root\tSpaceAfter=No
4.1\tit\tit\tPRON\t_\t_\t_\t_\t4:obj\t_
5\t.\t.\tPUNCT\t.\t_\t4\tpunct\t4:punct\t_

1\tNo\tno\tDET\tDT\t_\t0\troot\t_\t_
"""


def row(number, word, head, relation="dep"):
    return "\t".join([str(number), word, "_", "X", "_", "_", str(head), relation, "_", "_"])


def test_sentences_have_the_words_without_multiword_tokens_and_empty_nodes():
    first, second = parse_conllu(PARSED, "file")
    assert (first.name, second.name) == ("a-1", "2")
    assert (first.line, second.line) == (1, 12)
    assert second.where == "file, line 12, sentence 2"
    assert sentence_of(["a"]).where == "sentence 1"
    assert first.words == ("We", "do", "n't", "see", ".")
    assert first.upos == ("PRON", "AUX", "PART", "VERB", "PUNCT")
    assert first.xpos == ("PRP", "VBP", "RB", "VB", ".")
    assert first.heads == (4, 4, 4, 0, 4)
    assert first.relations == ("nsubj", "aux", "advmod", "root", "punct")


def test_what_is_written_is_what_was_read():
    assert written(parse_conllu(PARSED, "file")) == PARSED + "\n"


def test_words_and_tags_are_read_without_white_space_around_them():
    spaced = PARSED.replace("\tdo\t", "\t do \t").replace("\tVERB\t", "\tVERB \t")
    read = parse_conllu(spaced, "file")
    assert [(one.words, one.upos) for one in read] == [(one.words, one.upos) for one in parse_conllu(PARSED, "file")]
    assert written(read) == spaced + "\n"


def test_a_sentence_without_its_tree_keeps_all_other_columns_and_lines():
    first, _ = parse_conllu(PARSED, "file")
    found = first.without_tree()
    assert (found.heads, found.relations) == (None, None)
    assert found.lines[7] == "4\tsee\tsee\tVERB\tVB\t_\t_\t_\t0:root\tSpaceAfter=No"
    assert found.with_tree(first.heads, first.relations) == first


def test_new_tags_change_their_columns_of_the_words_only():
    first = parse_conllu(PARSED, "file")[0]
    assert first.feats == ("Case=Nom", "_", "_", "_", "_")
    changed = first.with_tags({"feats": ["_", "A=B", "_", "_", "_"], "upos": ["X"] * 5})
    assert (changed.feats, changed.upos, changed.xpos) == (("_", "A=B", "_", "_", "_"), ("X",) * 5, first.xpos)
    assert changed.lines[5] == "2\tdo\tdo\tX\tVBP\tA=B\t4\taux\t4:aux\t_"
    assert changed.with_tags({"feats": first.feats, "upos": first.upos}) == first
    assert (changed.lines[4], changed.lines[8]) == (first.lines[4], first.lines[8])


def test_a_new_tree_changes_two_columns_of_the_words_only():
    first = parse_conllu(PARSED, "file")[0]
    changed = first.with_tree([0, 1, 1, 1, 1], ["root", "a", "b", "c", "d"])
    assert (changed.heads, changed.relations) == ((0, 1, 1, 1, 1), ("root", "a", "b", "c", "d"))
    for before, after in zip(first.lines, changed.lines, strict=True):
        fields, new = before.split("\t"), after.split("\t")
        if before.startswith("#") or not fields[0].isdigit():
            assert after == before
        else:
            word = int(fields[0]) - 1
            expected = [*fields[:6], str(changed.heads[word]), changed.relations[word], *fields[8:]]
            assert new == expected
    assert parse_conllu(written([changed]), "file")[0] == dataclasses.replace(changed, line=1)


def test_new_tags_are_written_too():
    first = parse_conllu(PARSED, "file")[0].with_tree([0, 1, 1, 1, 1], ["root", *"abcd"], upos=[*"VWXYZ"])
    assert first.upos == tuple("VWXYZ")
    assert parse_conllu(written([first]), "file")[0].upos == tuple("VWXYZ")


def test_a_sentence_of_words_reads_back():
    sentence = sentence_of(["a", "b c"], ["X", "Y"], [2, 0], ["dep", "root"], name="7")
    assert parse_conllu(written([sentence]), "file") == [sentence]
    plain = sentence_of(["a", "b"])
    assert plain.heads is None
    assert parse_conllu(written([plain]), "file") == [plain]
    with pytest.raises(ValueError, match="or have a tab or a line break, got 'a\\\\tb'"):
        sentence_of(["a\tb"])


def test_a_text_keeps_its_blanks():
    sentence = sentence_of(["It", "ca", "n't", "."], joined=[False, True, True, False])
    assert sentence.lines[1] == "# text = It can't."
    assert [line.rpartition("\t")[2] for line in sentence.lines[2:]] == ["_", "SpaceAfter=No", "SpaceAfter=No", "_"]


def test_lines_are_counted_where_the_last_one_has_no_end():
    first, second = parse_conllu(f"{row(1, 'a', 0, 'root')}\n\n\n{row(1, 'b', 0, 'root')}", "file")
    assert (first.line, second.line) == (1, 4)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (
            ["1\ta\t_\tX"],
            "file, line 1, sentence 1: expected CoNLL-U, 10 columns with tabs between them, got 4; write _",
        ),
        (["a"], "line 1, sentence 1: expected CoNLL-U, 10 columns with tabs between them, got 1$"),
        ([row(1, "a b", 0, "root") + "\t*"], "10 columns .*, got 11; keep the first ten: cut -f 1-10"),
        ([row(1, "a", 0, "root"), row(1, "b", 0, "root")], "the ID 2, got '1'; an empty line ends a sentence"),
        (
            ["# sent_id = s9", row(1, "a", 0, "root").replace("\tX\t", " X ")],
            "file, line 2, sentence s9: expected CoNLL-U, 10 columns .*, got 8; some columns have spaces",
        ),
        ([row(1, "a", 0, "root"), row(3, "b", 1)], "line 2, sentence 1: expected the ID 2, got '3'"),
        ([row("x", "a", 0, "root")], "line 1, sentence 1: expected an ID such as 8, 8-9 or 8.1, got 'x'"),
        ([row(1, "a", 0, "root"), row("2.5", "b", 1)], "line 2, .* expected an empty node 1.1 or the ID 2, got '2.5'"),
        (
            [row("2-3", "ab", "_", "_"), row(1, "a", 0, "root")],
            "line 1, .* a multiword token that begins with 1, got '2-3'",
        ),
        (
            [row("1-2", "ab", "_", "_"), row(1, "a", 0, "root")],
            "line 1, .* ends with word 2, but the last word is 1",
        ),
        ([row("1-2", "ab", "_", "_"), row("1-2", "ab", "_", "_")], "line 2, .* 1-2 begins within another one"),
        ([row("1-1", "a", "_", "_"), row(1, "a", 0, "root")], "token that begins with 1, got '1-1'"),
        ([row("1-" + "9" * 5_000, "a", "_", "_")], "expected an ID such as 8, 8-9 or 8.1, got '1-9{37}$"),
        ([row(1, " ", 0, "root")], "line 1, sentence 1: the word has no FORM"),
        ([row(1, "a", 0, "root"), row(2, "b", 3)], "line 2, sentence 1: the HEAD of 'b' must be a number from 0 to 2"),
        ([row(1, "a", "_", "_"), row(2, "b", 0, "root")], "line 1, .* the HEAD of 'a' must be .* got '_'"),
        ([row(1, "a", 0, "_")], "line 1, sentence 1: 'a' has a HEAD and no DEPREL"),
        (
            ["# a", row(1, "a", 0, "root"), row(2, "b", 3), row(3, "c", 2)],
            "line 3, sentence 1: expected a tree, got a cycle: the heads of the words 2 -> 3 -> 2",
        ),
        ([row(1, "a", 1)], "line 1, sentence 1: expected a tree, got a cycle: the heads of the words 1 -> 1"),
        (
            [row(1, "a", 0, "root"), row(2, "b", 0, "root")],
            "line 2, sentence 1: expected one root, got 2: words 1, 2 have HEAD 0",
        ),
        (
            [row(1, "a", 0, "root"), row(2, "b", 1, "root")],
            "line 2, .* 'b' has the HEAD 1 and the relation root; expected the relation root where",
        ),
        ([row(1, "a", 0, "ROOT")], "line 1, sentence 1: 'a' has the HEAD 0 and the relation ROOT; expected"),
        ([row(1, "a", "9" * 5_000, "root")], "line 1, .* must be a number from 0 to 1, got '9{39}$"),
        ([row(1, "a", "00", "root")], "line 1, .* must be a number from 0 to 1, got '00'"),
        (
            ["# sent_id = {1} }", row(1, "a", 0, "ROOT")],
            r"line 2, sentence \{1\} \}: 'a' has the HEAD 0 and the relation",
        ),
        ([row(1, "a", "²", "root")], "line 1, .* the HEAD of 'a' must be a number from 0 to 1, got '²'"),
        ([row("²", "a", 0, "root")], "line 1, .* expected an ID such as 8, 8-9 or 8.1, got '²'"),
        (["# only a comment"], "has no sentences; expected CoNLL-U"),
    ],
)
def test_errors_name_file_line_and_sentence(lines, message):
    with pytest.raises(DataError, match=message):
        parse_conllu("\n".join(lines) + "\n", "file")


@pytest.mark.parametrize("heads", [(2, 1), (0, 0), (0, "_"), (0, 9), ("x", "")])
def test_any_head_is_right_where_trees_are_not_read(heads):
    text = "".join(row(number, "a", head) + "\n" for number, head in enumerate(heads, 1)) + "\n"
    (sentence,) = parse_conllu(text, "file", trees=False)
    assert (sentence.words, sentence.heads, sentence.relations) == (("a", "a"), None, None)
    assert written([sentence]) == text


def test_an_empty_file_is_refused():
    with pytest.raises(DataError, match="file has no sentences; expected CoNLL-U"):
        parse_conllu("\n\n", "file")


def test_a_tree_without_a_root_is_a_cycle():
    assert tree_problem([2, 1])[1].startswith("expected a tree, got a cycle")
    assert tree_problem([2, 0, 2]) is None


def test_an_empty_tag_is_a_tag_that_is_not_given():
    (sentence,) = parse_conllu("1\ta\t_\t\t \t_\t_\t_\t_\t_\n", "file")
    assert (sentence.upos, sentence.xpos) == (("_",), ("_",))


def test_subtypes_are_after_the_colon():
    assert [universal(name) for name in ("nsubj:pass", "nsubj", "acl:relcl:x")] == ["nsubj", "nsubj", "acl"]


def test_a_sentence_with_only_comments_has_no_words():
    first, second = parse_conllu(f"# sent_id = x\n\n{row(1, 'a', 0, 'root')}\n\n", "file")
    assert (first.name, first.words, first.heads, second.words) == ("x", (), None, ("a",))
    assert written([first]) == "# sent_id = x\n\n"
