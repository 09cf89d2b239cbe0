import errno
import os
from pathlib import Path

import pytest

from jaxnlp.saving.atomic_files import AppendedFile, naming, new_folder, refuse_contents, require_place, write_file
from tests.small_disk import small_disk


@small_disk()
def test_a_record_is_appended_whole_or_not_at_all(tmp_path):
    file = AppendedFile(tmp_path / "x")
    file.append(b"a" * 60)
    with pytest.raises(OSError, match="File too large") as caught:
        file.append(b"b" * 60)
    assert caught.value.filename == str(tmp_path / "x")
    file.append(b"c" * 30)
    file.close()
    assert (tmp_path / "x").read_bytes() == b"a" * 60 + b"c" * 30


@small_disk()
def test_a_file_that_does_not_fit_is_named_and_the_earlier_one_kept(tmp_path):
    write_file(tmp_path / "x", b"one")
    with pytest.raises(OSError, match="File too large") as caught:
        write_file(tmp_path / "x", b"2" * 200)
    assert caught.value.filename == str(tmp_path / "x")
    assert os.listdir(tmp_path) == ["x"]
    assert (tmp_path / "x").read_bytes() == b"one"


@pytest.mark.parametrize(
    ("error", "named"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), True),
        (OSError(errno.ENOSPC, "No space left on device", "temporary"), True),
        (ValueError('RESOURCE_EXHAUSTED: Error writing "x" [OS error 28: ENOSPC No space left on device]'), True),
        (OSError("a message"), False),
        (ValueError("2 is too many"), False),
    ],
    ids=str,
)
def test_errors_of_the_file_system_name_the_file_whoever_raises_them(error, named):
    with pytest.raises((OSError, ValueError)) as caught, naming(Path("a/b")):
        raise error
    if named:
        assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, "a/b")
    else:
        assert caught.value is error


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
def test_a_full_device_is_named():
    with pytest.raises(OSError, match="No space left on device: '/dev/full'"):
        write_file(Path("/dev/full"), b"one")


def test_a_folder_is_made_with_a_note(tmp_path, caplog):
    with caplog.at_level("INFO"):
        for name in ("x", "y"):
            write_file(tmp_path / "new" / "folder" / name, b"one")
    assert caplog.messages == [f"{tmp_path / 'new' / 'folder'} is a new folder"]


@pytest.mark.parametrize("name", ["x" * 255, "é" * 127, "漢" * 85])
def test_names_may_be_as_long_as_the_file_system_allows(tmp_path, name):
    write_file(tmp_path / name, b"one")
    (tmp_path / name).unlink()
    with new_folder(tmp_path / name) as partial:
        (partial / "x").write_bytes(b"one")
    assert [*os.listdir(tmp_path), *os.listdir(tmp_path / name)] == [name, "x"]


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


def test_an_error_has_the_name_of_the_file_and_not_that_of_a_temporary_one(tmp_path, monkeypatch):
    def missing(path, content):
        raise FileNotFoundError(2, "No such file or directory", str(path))

    def refused(path, missing_ok=False):
        raise OSError(errno.EROFS, "Read-only file system", str(path))

    monkeypatch.setattr(Path, "write_bytes", missing)
    monkeypatch.setattr(Path, "unlink", refused)  # a read-only file system refuses also this
    with pytest.raises(FileNotFoundError) as found:
        write_file(tmp_path / "x", b"one")
    assert found.value.filename == str(tmp_path / "x")


def test_places_that_cannot_be_written_are_found_before_the_work(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    for place in (None, tmp_path / "file", tmp_path / "new", tmp_path / "new" / "folder" / "x"):
        require_place(place)
    assert os.listdir(tmp_path) == ["file"]
    with pytest.raises(IsADirectoryError, match=str(tmp_path)):
        require_place(tmp_path)
    with pytest.raises(NotADirectoryError, match="file"):
        require_place(tmp_path / "file" / "x")
    with pytest.raises(ValueError, match="--html expects the name of a file, got -; without --html the usual place"):
        require_place(Path("-"), option="--html")
    monkeypatch.setattr(os, "access", lambda *_: False)
    monkeypatch.chdir(tmp_path)
    refused = f"x cannot be written: the folder {tmp_path} does not allow it; give another place with --page"
    for place in (Path("x"), tmp_path / "new" / "x"):
        with pytest.raises(PermissionError, match=refused):
            require_place(place, option="--page")
    with pytest.raises(PermissionError, match="file cannot be written"):  # to replace a file changes its folder
        require_place(tmp_path / "file")


def test_a_file_that_is_read_is_not_replaced(tmp_path, monkeypatch):
    (tmp_path / "read.conll").write_text("a\n")
    (tmp_path / "other.conll").write_text("b\n")
    monkeypatch.chdir(tmp_path)
    inputs = (None, tmp_path / "read.conll", Path("-"))
    with pytest.raises(ValueError, match=r"^--out read\.conll is the file that is read, which it would replace"):
        require_place(Path("read.conll"), ".conll", inputs=inputs)
    require_place(Path("other.conll"), ".conll", inputs=inputs)


@small_disk()
def test_a_new_folder_is_whole_or_not_there(tmp_path):
    place = tmp_path / "inner" / "folder"
    with new_folder(place) as partial:
        (partial / "x").write_bytes(b"one")
        assert not place.exists()
    assert ((place / "x").read_bytes(), place.stat().st_mode & 0o777) == (b"one", 0o755)
    with pytest.raises(OSError, match="File too large") as caught, new_folder(tmp_path / "other") as partial:
        (partial / "x").write_bytes(b"2" * 200)
    assert caught.value.filename == str(tmp_path / "other")
    assert os.listdir(tmp_path) == ["inner"]
    assert os.listdir(tmp_path / "inner") == ["folder"]


def test_folders_with_contents_and_files_are_refused(tmp_path):
    refuse_contents(tmp_path)
    refuse_contents(tmp_path / "new")
    (tmp_path / "x").touch()
    for path in (tmp_path, tmp_path / "x"):
        with pytest.raises(FileExistsError, match="exists and is not empty; give another directory"):
            refuse_contents(path)


@pytest.mark.parametrize("name", ["v.csv", "v.JSONL", "v.html"])
def test_a_name_of_another_format_is_refused_before_long_work(tmp_path, name):
    with pytest.raises(ValueError, match=rf"{name} would have the format of \.npy files; give it a name in \.npy$"):
        require_place(tmp_path / name, ".npy")


@pytest.mark.parametrize("name", ["v.npy", "v.NPY", "v", "v.bin", "v.txt"])
def test_a_name_without_a_known_format_may_have_any(tmp_path, name):
    require_place(tmp_path / name, ".npy")
    require_place(tmp_path / "v.csv")
