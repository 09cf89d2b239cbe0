import os
from pathlib import Path

import pytest

from data import DataError
from data.sentence_classes import FILES, read_data_set_file


def test_each_line_is_a_label_and_a_sentence(tmp_path):
    path = tmp_path / "rt-polarity.all"
    path.write_bytes("1 caf\xe9 \x85 film\n0 bad\n".encode("latin-1"))
    rows = read_data_set_file("mr", path)
    assert [(row.line, row.label, row.texts) for row in rows] == [(1, "1", ("caf\xe9 \x85 film",)), (2, "0", ("bad",))]
    path.write_bytes(b"1 fine\n0\n")
    with pytest.raises(DataError, match=r"rt-polarity.all, line 2: expected a label, a blank and a sentence, got '0'"):
        read_data_set_file("mr", path)
    with pytest.raises(FileNotFoundError, match=r"there is no file none.all of mr"):
        read_data_set_file("mr", tmp_path / "none.all")


@pytest.mark.realdata
@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("mr", (10_662,)),
        ("sst5", (8_544, 1_101)),
        ("sst2", (6_920, 872)),
        ("trec", (5_452,)),
        ("afqmc", (34_334, 2_158, 3_861)),
    ],
)
def test_the_data_sets_are_read_whole(name, counts):
    files = FILES[name]
    paths = [Path(os.environ["JAXNLP_DATA"]) / files.folder / file for file in files[1:4] if file is not None]
    assert tuple(len(read_data_set_file(name, path, labelled=None)) for path in paths) == counts
