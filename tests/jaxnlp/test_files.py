import os
from pathlib import Path

import pytest

from jaxnlp.files import write_file


def test_files_are_whole_or_not_there(tmp_path, monkeypatch):
    write_file(tmp_path / "new" / "x", b"one")
    write_file(tmp_path / "new" / "x", b"two")
    assert (tmp_path / "new" / "x").read_bytes() == b"two"

    def full(*_):
        raise OSError("no space left")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="no space left"):
        write_file(tmp_path / "new" / "x", b"three")
    assert os.listdir(tmp_path / "new") == ["x"]
    assert (tmp_path / "new" / "x").read_bytes() == b"two"


def test_a_pipe_is_written_to_and_a_folder_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    write_file(tmp_path / "pipe", b"one")
    assert os.read(reader, 10) == b"one"
    os.close(reader)
    with pytest.raises(IsADirectoryError):
        write_file(tmp_path, b"one")
