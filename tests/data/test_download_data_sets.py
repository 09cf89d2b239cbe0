"""Downloads of whole data sets, and the command `jaxnlp download`."""

import gzip
import hashlib
import http.server
import re
import threading
from types import MappingProxyType

import pytest
import requests

import data.download as download
from data.data_sets import DataSet, RemoteFile
from data.download import DataNotFoundError, digest_of, fetch, locate_folder, main
from jaxnlp.__main__ import main as jaxnlp_main
from tests.network import CONTENT, PLAYS, cached_path, put

PLAIN = b"a line of training text\n" * 5000
SCENES = RemoteFile("plays", "plays/scenes.txt.gz", "https://example.org/scenes.txt", hashlib.sha256(PLAIN).hexdigest())
WHOLE = DataSet(
    name="plays",
    title="Plays",
    page="https://example.org/",
    licence="public domain",
    megabytes=0.3,
    checksums=MappingProxyType({"input.txt": PLAYS.sha256, "scenes.txt.gz": SCENES.sha256, "notes.txt": "0" * 64}),
    remote=(PLAYS, SCENES),
    note="Ask for the notes.",
)
BY_HAND = DataSet("poems", "Poems", "https://example.org/poems", "secret", 0.1, {"a.txt": "0" * 64}, (), "Ask.")

pytestmark = pytest.mark.usefixtures("network")


@pytest.fixture
def data_sets(monkeypatch):
    monkeypatch.setattr(download, "DATA_SETS", {"plays": WHOLE, "poems": BY_HAND})


@pytest.fixture
def all_online(online):
    online.pages[SCENES.url] = (200, {}, PLAIN)
    return online


def test_a_data_set_is_downloaded_whole_and_compressed_as_its_readers_expect_it(all_online, tmp_path, files_below):
    assert fetch(WHOLE, tmp_path / "sets" / "plays") == 2
    plays, scenes = (tmp_path / "sets" / file.relative_path for file in (PLAYS, SCENES))
    assert files_below(tmp_path / "sets") == [plays, scenes]
    assert plays.read_bytes() == CONTENT
    assert gzip.decompress(scenes.read_bytes()) == PLAIN
    assert len(scenes.read_bytes()) < len(PLAIN)


def test_files_at_hand_are_not_downloaded_again(all_online, tmp_path):
    put(tmp_path, CONTENT)
    assert fetch(WHOLE, tmp_path / "plays") == 1
    assert fetch(WHOLE, tmp_path / "plays") == 0
    assert all_online.asked == [SCENES.url]


def test_a_file_of_other_content_is_never_overwritten(all_online, tmp_path):
    own = put(tmp_path, b"the user's own edition")
    with pytest.raises(FileExistsError, match=f"{re.escape(str(own))} has other content .*; move or delete it first"):
        fetch(WHOLE, tmp_path / "plays")
    assert own.read_bytes() == b"the user's own edition"
    assert all_online.asked == []


@pytest.mark.parametrize("served", [(404, {}, b""), (200, {}, PLAIN[:-1])], ids=["gone", "another checksum"])
def test_where_one_file_cannot_be_downloaded_none_arrives(served, all_online, tmp_path, files_below):
    all_online.pages[SCENES.url] = served
    with pytest.raises(DataNotFoundError, match=f"^plays: the download from {SCENES.url} failed "):
        fetch(WHOLE, tmp_path / "plays")
    assert all_online.asked == [PLAYS.url, SCENES.url]
    assert files_below(tmp_path) == []


def test_a_served_file_that_should_be_compressed_and_is_not_is_refused(online, tmp_path):
    file = RemoteFile("plays", "plays/a.gz", "https://example.org/a.gz", PLAYS.sha256)
    online.pages[file.url] = (200, {}, CONTENT)
    with pytest.raises(DataNotFoundError, match="it is not a gzip file of"):
        fetch(DataSet("plays", "", "", "", 0.1, {}, (file,), ""), tmp_path / "plays")


def test_the_digest_of_a_compressed_file_is_that_of_its_content(tmp_path):
    plain, packed, damaged = tmp_path / "a.txt", tmp_path / "a.txt.gz", tmp_path / "b.txt.gz"
    plain.write_bytes(PLAIN)
    packed.write_bytes(gzip.compress(PLAIN))
    damaged.write_bytes(gzip.compress(PLAIN)[:-9])
    assert digest_of(plain) == digest_of(packed) == hashlib.sha256(PLAIN).hexdigest()
    assert digest_of(damaged) is None


def test_the_command_downloads_to_the_users_folder_and_says_what_and_under_which_licence(
    all_online, data_sets, own_folder, capsys
):
    assert main(["plays"]) == 0
    printed = capsys.readouterr().out
    assert (own_folder / PLAYS.relative_path).read_bytes() == CONTENT
    assert "plays: Plays, from https://example.org/\nlicence: public domain\n" in printed
    assert f"2 files downloaded; plays is in {own_folder / 'plays'}\n" in printed
    assert "not downloaded: notes.txt. Ask for the notes.\n" in printed
    assert locate_folder("plays", None, holds="input.txt", otherwise="do without") == own_folder / "plays"


def test_without_a_folder_of_the_users_the_command_downloads_to_the_cache_where_recipes_look(all_online, data_sets):
    assert main(["plays"]) == 0
    assert locate_folder("plays", None, holds="input.txt", otherwise="do without") == cached_path().parent
    assert cached_path().read_bytes() == CONTENT


def test_the_list_says_what_is_at_hand_and_where_the_rest_comes_from(all_online, data_sets, own_folder, capsys):
    def listed():
        assert main([]) == 0
        return capsys.readouterr().out.splitlines()[:2]

    assert listed() == ["plays   0.3 MB  to download", "poems   0.1 MB  by hand, from https://example.org/poems"]
    put(own_folder, CONTENT)
    assert listed()[0] == "plays   0.3 MB  1 of 2 files in JAXNLP_DATA; to download"
    main(["plays"])
    capsys.readouterr()
    assert listed()[0] == "plays   0.3 MB  in JAXNLP_DATA"


def test_a_reader_that_has_seen_enough_is_no_failed_download(all_online, data_sets, monkeypatch):
    def closed():
        raise BrokenPipeError

    monkeypatch.setattr(download, "print_list", closed)
    with pytest.raises(BrokenPipeError):  # the command then ends quietly
        main([])


def test_the_check_finds_a_damaged_file(all_online, data_sets, own_folder, capsys):
    main(["plays"])
    capsys.readouterr()
    assert main(["--check", "plays"]) == 0
    assert capsys.readouterr().out == "plays in JAXNLP_DATA: 2 of 2 files have the right checksum\n"
    damaged = own_folder / PLAYS.relative_path
    damaged.write_bytes(CONTENT[:-1])
    assert main(["--check"]) == 1
    assert f"{damaged}: its SHA-256 differs" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["play"], 2, "there is no data set 'play'; did you mean plays?"),
        (["zzz"], 2, "there is no data set 'zzz'; there are: plays, poems"),
        (
            ["poems"],
            1,
            r"poems cannot be downloaded from here: get a.txt from https://example.org/poems and copy .* Ask.",
        ),
        (["plays"], 1, r"plays: the download from https://example.org/plays.txt failed \(.*Name or service not known"),
    ],
)
def test_a_wrong_command_or_a_failed_download_is_one_line_and_a_status(data_sets, capsys, arguments, status, message):
    assert jaxnlp_main(["download", *arguments]) == status
    assert re.search(rf"^error: {message}", capsys.readouterr().err)


class _Server(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        content = {"/plays.txt": CONTENT, "/scenes.txt": PLAIN}[self.path]
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        """Tests print nothing."""


def test_a_real_server_is_read_and_the_bars_end_at_the_size_of_the_files(monkeypatch, data_sets, own_folder, capsys):
    monkeypatch.undo()  # the stand-in of the network
    monkeypatch.setenv("JAXNLP_DATA", str(own_folder))
    monkeypatch.setattr(download, "DATA_SETS", {"plays": WHOLE})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Server) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        get = requests.get

        def local(url, **options):
            del options["hooks"]  # which refuse http
            return get(url.replace("https://example.org", f"http://127.0.0.1:{server.server_port}"), **options)

        monkeypatch.setattr(requests, "get", local)
        assert main(["plays"]) == 0
        server.shutdown()
    assert (own_folder / PLAYS.relative_path).read_bytes() == CONTENT
    printed = capsys.readouterr().out
    assert re.search(r"plays/input.txt .*183.0/183.0 kB", printed)
    assert re.search(r"plays/scenes.txt.gz .*120.0/120.0 kB", printed)
