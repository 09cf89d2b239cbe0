import pytest

from jaxnlp.cli.tables import TextColumns, table_rows, table_with
from jaxnlp.corpus import DataError, SourceRows
from jaxnlp.input_files.tables import Writing


def test_columns_are_those_of_the_runs_training_table():
    data = {"text": "body", "pair": "other", "delimiter": ";", "quotes": "none", "encoding": "cp1252", "label": "stars"}
    assert TextColumns.of_run({"data": data}) == TextColumns(("body", "other"), Writing(None, ";", "none", "cp1252"))
    assert TextColumns.of_run({"data": {"text": "body", "pair": None}}) == TextColumns(("body", "pair"))
    assert TextColumns.of_run({"data": {"train": "x"}}) == TextColumns.of_run(None) == TextColumns()


def test_rows_have_the_texts_that_the_model_reads_blank_ones_too(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("label,pair,text\nx,b,a\n,,\ny,d,c\n")
    assert [row.texts for row in table_rows(path, TextColumns(), 2)] == [("a", "b"), ("", ""), ("c", "d")]
    assert [(row.texts, row.line) for row in table_rows(path, TextColumns(("pair",)), 1)] == [
        *((("b",), 2), (("",), 3)),
        (("d",), 4),
    ]
    with pytest.raises(DataError, match=r"line 1: .* got label, pair, text; missing: body; name the columns as in"):
        table_rows(path, TextColumns(("body",)), 1)


def test_further_columns_get_a_number_where_their_name_is_taken():
    source = SourceRows([0], ["1"], ("a", "b", "b 2"), [("x", "y, z", "")])
    assert table_with(source, ["b", "c"], [["1", "2"]]) == 'a,b,b 2,b 3,c\nx,"y, z",,1,2\n'
