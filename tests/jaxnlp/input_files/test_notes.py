from pathlib import Path

from jaxnlp.input_files.notes import report_blank, report_skipped, report_truncated, warn_of_truncated


def test_truncated_texts_are_counted_and_the_first_is_named(capsys):
    report_truncated([], 3, 128)
    report_truncated(range(1150, 2350), 3000, 128)
    report_truncated([1], 2, 128)
    report_truncated([0], 1, 128)
    assert capsys.readouterr() == (
        "",
        "note: 1,200 of 3,000 texts were truncated to 128 tokens; the first is text 1,151\n"
        "note: 1 of 2 texts was truncated to 128 tokens; the first is text 2\n"
        "note: the text was truncated to 128 tokens\n",
    )


def test_in_python_truncated_texts_are_a_warning_in_the_log(caplog):
    warn_of_truncated([], 3, 128)
    warn_of_truncated([1], 2, 128)
    assert caplog.messages == ["1 of 2 texts was truncated to 128 tokens; the first is text 2"]


def test_blank_texts_and_inputs_without_a_result_are_counted_and_the_first_is_named(capsys):
    report_blank([], 13, (), None)
    report_blank([12, 13], 13, (), Path("x"))
    report_skipped([], 3, "texts", "labels")
    report_skipped(["x, line 2: long"], 3, "texts", "labels")
    report_skipped(["text 1: long", "text 2: long"], 3, "sentences", "tree")
    assert capsys.readouterr().err.splitlines() == [
        "note: 2 of 13 texts are blank and have no answer; the first is x, line 12",
        "note: 1 of 3 texts has no labels; x, line 2: long",
        "note: 2 of 3 sentences have no tree; the first: text 1: long",
    ]
