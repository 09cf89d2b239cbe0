import gzip
import os
from pathlib import Path

import pytest

from data import DataError
from data.readers.labelled_data_sets import LABELLED, read_data_set, read_data_set_file


def test_each_line_is_a_label_and_a_sentence(tmp_path):
    path = tmp_path / "rt-polarity.all"
    path.write_bytes("1 caf\xe9 \x85 film\n0 bad\n".encode("latin-1"))
    rows, _ = read_data_set_file("mr", path)
    assert [(row.line, row.label, row.texts) for row in rows] == [(1, "1", ("caf\xe9 \x85 film",)), (2, "0", ("bad",))]
    path.write_bytes(b"1 fine\n0\n")
    with pytest.raises(DataError, match=r"rt-polarity.all, line 2: expected a label, a space and a sentence, got '0'"):
        read_data_set_file("mr", path)
    with pytest.raises(FileNotFoundError, match=r"the file none.all of mr does not exist"):
        read_data_set_file("mr", tmp_path / "none.all")


QUORA = "\tid\tsentence1\tsentence2\tis_duplicate\n"
STS = "\tid\tsentence1\tsentence2\tsimilarity\n"


def quora_rows(count):
    return QUORA + "".join(f"{n}\tq{n}\ta {n}\tb {n}\t{n % 2}.0\n" for n in range(count))


def test_without_a_training_file_the_first_rows_with_labels_are_for_training(tmp_path, monkeypatch, caplog):
    monkeypatch.setitem(LABELLED, "cs224n_quora", LABELLED["cs224n_quora"]._replace(training_rows=3))
    text = quora_rows(2) + "9\tnone\ta\tb\t\n" + quora_rows(5).partition("\n")[2]
    (tmp_path / "quora-dev.csv.gz").write_bytes(gzip.compress(text.encode()))
    found = read_data_set("cs224n_quora", tmp_path)
    assert {name: [row.id for row in rows] for name, (_, rows) in found.items()} == {
        "train": ["q0", "q1", "q0"],
        "validation": ["q1", "q2", "q3", "q4"],
    }
    assert "rows without a label, which are skipped: 1 of 8, the first in line 4" in caplog.text
    (tmp_path / "quora-train.csv").write_text(quora_rows(4))
    (tmp_path / "quora-test-student.csv").write_text(QUORA.replace("\tis_duplicate", "") + "0\tq\ta\tb\n")
    found = read_data_set("cs224n_quora", tmp_path)
    assert {name: len(rows) for name, (_, rows) in found.items()} == {"train": 4, "validation": 7, "test": 1}
    assert [row.label for row in found["test"][1]] == [None]


def test_what_is_missing_or_too_small_is_named(tmp_path):
    message = r"does not have sts-train.csv and sts-dev.csv for cs224n_sts, with or without .gz; .*--data.path"
    with pytest.raises(FileNotFoundError, match=message):
        read_data_set("cs224n_sts", tmp_path)
    (tmp_path / "quora-dev.csv").write_text(quora_rows(5))
    with pytest.raises(DataError, match=r"has 5 rows; without quora-train.csv it needs more than 16000"):
        read_data_set("cs224n_quora", tmp_path)


@pytest.mark.sweep(1)
@pytest.mark.realdata
@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("mr", (10_662,)),
        ("sst5", (8_544, 1_101)),
        ("sst2", (6_920, 872)),
        ("trec", (5_452,)),
        ("afqmc", (34_334, 2_158, 3_861)),
        ("cs224n_sst", (8_544, 1_101, 2_210)),
        ("cs224n_cfimdb", (1_707, 245, 488)),
        ("cs224n_quora", (16_000, 4_212)),
        ("cs224n_sts", (6_040, 863, 1_725)),
    ],
)
def test_the_data_sets_are_read_whole(name, counts):
    found = read_data_set(name, Path(os.environ["JAXNLP_DATA"]) / LABELLED[name].folder)
    assert tuple(len(rows) for _, rows in found.values()) == counts


def test_blank_lines_are_skipped_counted_and_keep_their_places(tmp_path, caplog):
    path = tmp_path / "stsa.binary.dev"
    path.write_text("1 fine\n\n\u200b\n0 bad\n", encoding="utf-8")
    rows, source = read_data_set_file("sst2", path)
    assert [row.texts for row in rows] == [("fine",), ("bad",)]
    assert (source.indices, source.names) == ([0, 3], ["1", "2", "3", "4"])
    assert caplog.messages == [f"{path}: lines without text, which are skipped: 2 of 4, the first in line 2"]
    path.write_bytes(b"1 caf\xe9\n")
    with pytest.raises(DataError, match=r"stsa.binary.dev, line 1, offset 5: byte 0xe9 is not UTF-8"):
        read_data_set_file("sst2", path)
