import io
import os
import stat
import tarfile
import warnings
import zipfile

import pytest

from data.readers.archives import unpack

CONTENT = b"First Citizen:\nBefore we proceed any further, hear me speak.\n" * 3000
TAR_MODES = {".tar": "w", ".tar.gz": "w:gz", ".tgz": "w:gz", ".tar.xz": "w:xz"}
SUFFIXES = [".zip", *TAR_MODES]


def make_archive(path, members):
    """members: (name, content) in turn; a name that ends in / is a folder; content may be a kind of special file."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # zipfile warns of a name that occurs twice
        (make_zip if path.suffix == ".zip" else make_tar)(path, members)
    return path


SPECIAL = {
    "symbolic link": (stat.S_IFLNK, tarfile.SYMTYPE),
    "hard link": (None, tarfile.LNKTYPE),
    "character device": (stat.S_IFCHR, tarfile.CHRTYPE),
    "block device": (stat.S_IFBLK, tarfile.BLKTYPE),
    "pipe": (stat.S_IFIFO, tarfile.FIFOTYPE),
}


def make_zip(path, members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members:
            info = zipfile.ZipInfo(name)
            info.compress_type = zipfile.ZIP_DEFLATED
            if content in SPECIAL:
                info.external_attr = (SPECIAL[content][0] | 0o777) << 16
                content = b"../outside.txt"
            archive.writestr(info, content or b"")


def make_tar(path, members):
    with tarfile.open(path, TAR_MODES["".join(path.suffixes)]) as archive:
        for name, content in members:
            info = tarfile.TarInfo(name.rstrip("/") if name != "/" else name)
            if name.endswith("/"):
                info.type = tarfile.DIRTYPE
            elif content in SPECIAL:
                info.type = SPECIAL[content][1]
                info.linkname = "../outside.txt"
            else:
                info.size = len(content)
                info.mode = 0o4777
            archive.addfile(info, io.BytesIO(content) if isinstance(content, bytes) else None)


@pytest.fixture
def out(tmp_path):
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


def refused(archive, out, **limits):
    with pytest.raises(ValueError, match="cannot unpack") as caught:
        unpack(archive, out / "set", **limits)
    message = str(caught.value)
    assert message.startswith(f"cannot unpack {archive}, ")
    assert "\n" not in message
    assert list(out.iterdir()) == []
    return message


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_an_archive_is_unpacked_file_for_file(suffix, tmp_path, out, files_below):
    members = [("./", None), ("set/", None), ("set/a.txt", CONTENT), ("set/deep/b.bin", bytes(range(256))), ("c", b"")]
    archive = make_archive(tmp_path / f"plays{suffix}", members)
    destination = out / "new" / "set"
    assert unpack(archive, destination) == destination
    contents = {path.relative_to(destination).as_posix(): path.read_bytes() for path in files_below(destination)}
    assert contents == {name: content for name, content in members if content is not None}
    assert list(destination.parent.iterdir()) == [destination]


@pytest.mark.skipif(os.name != "posix", reason="modes are POSIX")
def test_modes_come_from_the_umask_and_not_from_the_archive(tmp_path, out, umask):
    archive = make_archive(tmp_path / "plays.tar", [("a/b", b"with the set-user-id bit")])
    with umask(0o022):
        folder = unpack(archive, out / "set")
    modes = [stat.S_IMODE((folder / name).stat().st_mode) for name in (".", "a", "a/b")]
    assert modes == [0o755, 0o755, 0o644]


@pytest.mark.parametrize("suffix", [".zip", ".tar.gz"])
@pytest.mark.parametrize(
    "name",
    ["../x", "a/../../x", "/x", "..", "a/..", "..\\x", "C:\\x", "C:x", "\\\\host\\share\\x", "../folder/"],
)
def test_a_member_that_leads_out_of_the_folder_refuses_the_archive(name, suffix, tmp_path, out, files_below):
    archive = make_archive(tmp_path / f"evil{suffix}", [("good.txt", b"good"), (name, b"bad")])
    message = refused(archive, out)
    assert repr(name.rstrip("/")).strip("'") in message
    assert "its path leaves" in message
    assert files_below(tmp_path) == [archive]


@pytest.mark.parametrize(
    ("suffix", "kind"),
    [(suffix, kind) for suffix in (".zip", ".tar") for kind in SPECIAL if (suffix, kind) != (".zip", "hard link")],
)
def test_links_and_devices_refuse_the_archive(suffix, kind, tmp_path, out):
    archive = make_archive(tmp_path / f"evil{suffix}", [("good.txt", b"good"), ("special", kind)])
    message = refused(archive, out)
    assert "'special'" in message
    assert "neither a plain file nor a folder" in message


@pytest.mark.parametrize("suffix", [".zip", ".tar"])
@pytest.mark.parametrize("names", [["a", "a"], ["a", "./a"], ["a", "b//a", "b/a"], ["a", "a/b"], ["a/b", "a"], ["."]])
def test_a_name_that_occurs_twice_refuses_the_archive(names, suffix, tmp_path, out):
    archive = make_archive(tmp_path / f"evil{suffix}", [(name, b"content") for name in names])
    assert f"last member read {names[-1]!r}" in refused(archive, out)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_more_bytes_than_the_limit_refuse_the_archive(suffix, tmp_path, out):
    archive = make_archive(tmp_path / f"bomb{suffix}", [("a", b"small"), ("bomb", bytes(10**6)), ("c", bytes(10**6))])
    message = refused(archive, out, max_bytes=10**6)
    assert "'bomb'" in message
    assert "more than 1000000 bytes" in message
    unpack(archive, out / "set", max_bytes=2 * 10**6 + 20_000)


def test_many_files_within_the_limit_are_counted_together(tmp_path, out):
    archive = make_archive(tmp_path / "bomb.zip", [(str(number), bytes(1000)) for number in range(11)])
    assert "more than 10999 bytes" in refused(archive, out, max_bytes=10_999)
    unpack(archive, out / "set", max_bytes=11_000)


def test_a_zip_header_that_understates_the_size_does_not_lift_the_limit(tmp_path, out):
    archive = make_archive(tmp_path / "bomb.zip", [("bomb", bytes(10**6))])
    size = (10**6).to_bytes(4, "little")
    assert archive.read_bytes().count(size) == 2
    archive.write_bytes(archive.read_bytes().replace(size, (10).to_bytes(4, "little")))
    refused(archive, out, max_bytes=1000)


def test_a_tar_header_of_great_size_counts_too(tmp_path, out):
    archive = tmp_path / "bomb.tar.gz"
    with tarfile.open(archive, "w:gz", format=tarfile.PAX_FORMAT, pax_headers={"comment": "x" * 10**6}) as tar:
        tar.addfile(tarfile.TarInfo("empty"))
    assert "more than 100000 bytes" in refused(archive, out, max_bytes=100_000)


def test_a_sparse_file_refuses_the_archive(tmp_path, out):
    archive = tmp_path / "bomb.tar"
    info = tarfile.TarInfo("holes")
    info.pax_headers = {"GNU.sparse.map": "0,1", "GNU.sparse.size": str(10**12)}
    info.size = 1
    with tarfile.open(archive, "w", format=tarfile.PAX_FORMAT) as tar:
        tar.addfile(info, io.BytesIO(b"x"))
    assert "neither a plain file nor a folder" in refused(archive, out, max_bytes=10**5)


@pytest.mark.parametrize("suffix", [".zip", ".tar"])
def test_more_members_than_the_limit_refuse_the_archive(suffix, tmp_path, out):
    archive = make_archive(tmp_path / f"many{suffix}", [("folder/", None), ("a", b""), ("b", b"")])
    assert "more than 2 members" in refused(archive, out, max_members=2)
    unpack(archive, out / "set", max_members=3)


def damaged_at(position):
    def damage(content):
        content = bytearray(content)
        content[position] ^= 1
        return bytes(content)

    return damage


@pytest.mark.parametrize(
    ("suffix", "damage"),
    [
        (".zip", lambda content: content[:-30]),
        (".zip", damaged_at(40)),
        (".tar", lambda content: content[: len(content) // 2]),
        (".tar.gz", lambda content: content[: len(content) // 2]),
        (".tar.gz", damaged_at(-8)),  # the checksum, which comes after everything else
        (".tar.xz", lambda content: content[: len(content) // 2]),
        (".tar.xz", damaged_at(60)),
        *((suffix, lambda content: b"") for suffix in SUFFIXES),
        *((suffix, lambda content: b"<html>not found</html>") for suffix in SUFFIXES),
    ],
)
def test_a_damaged_archive_is_refused(suffix, damage, tmp_path, out):
    archive = make_archive(tmp_path / f"plays{suffix}", [("a.txt", CONTENT)])
    archive.write_bytes(damage(archive.read_bytes()))
    refused(archive, out)


def test_an_archive_of_unknown_kind_is_refused_with_those_that_are_known(tmp_path, out):
    archive = tmp_path / "plays.rar"
    archive.write_bytes(CONTENT)
    assert "expected .zip, .tar, .tar.gz, .tgz or .tar.xz" in refused(archive, out)


def test_an_existing_destination_is_not_changed(tmp_path, out):
    archive = make_archive(tmp_path / "plays.zip", [("a.txt", CONTENT)])
    with pytest.raises(FileExistsError, match="exists"):
        unpack(archive, out)
    assert list(out.iterdir()) == []


def test_a_process_killed_while_unpacking_leaves_nothing_at_the_destination(tmp_path, out, files_below, run_and_die):
    archive = make_archive(tmp_path / "plays.tar", [("first.txt", CONTENT), ("second.txt", CONTENT)])
    script = """
import os, sys
from pathlib import Path
from data.readers.archives import unpack

sys.addaudithook(lambda event, args: event == "open" and str(args[0]).endswith("second.txt") and os._exit(9))
unpack(Path(sys.argv[1]), Path(sys.argv[2]))
"""
    run_and_die(script, archive, out / "set")
    assert [path.name for path in files_below(out)] == ["first.txt"]
    assert not (out / "set").exists()
    assert len(files_below(unpack(archive, out / "set"))) == 2
