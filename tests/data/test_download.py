import dataclasses
import gzip
import hashlib
import logging
import os
import stat
from pathlib import Path

import pytest
import requests

from data import download
from data.data_sets import DATA_SETS
from data.download import TINY_SHAKESPEARE, DataNotFoundError, locate, locate_folder
from jaxnlp.inference.caches import cache_folder
from tests.network import CONTENT, PLAYS, Body, cached_path, put

REAL_DATA = Path(os.environ.get("JAXNLP_DATA") or Path(__file__).parents[3] / "shared" / "data")

pytestmark = pytest.mark.usefixtures("network")


def refusal(path=None):
    with pytest.raises(DataNotFoundError) as caught:
        locate(PLAYS, path)
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith("plays: ")
    return message, caught.value


def test_explicit_path_wins_over_environment_and_cache(own_folder, online, tmp_path):
    put(own_folder, b"environment")
    put(cache_folder() / "data", CONTENT)
    given = tmp_path / "given.txt"
    given.write_bytes(b"given")
    assert locate(PLAYS, given) == given
    assert locate(PLAYS, str(given)) == given
    assert online.asked == []


def test_environment_wins_over_cache(own_folder, online):
    own = put(own_folder, CONTENT)
    put(cache_folder() / "data", CONTENT)
    assert locate(PLAYS) == own
    assert online.asked == []


def test_a_file_of_the_user_is_returned_whatever_it_holds(own_folder):
    own = put(own_folder, b"the user's own edition")
    assert locate(PLAYS) == own
    assert own.read_bytes() == b"the user's own edition"


@pytest.mark.parametrize("environment", ["folder without the file", "empty", "unset"])
def test_cache_wins_over_download(environment, online, monkeypatch, tmp_path):
    if environment != "unset":
        monkeypatch.setenv("JAXNLP_DATA", str(tmp_path) if environment == "folder without the file" else "")
    cached = put(cache_folder() / "data", CONTENT)
    assert locate(PLAYS) == cached
    assert online.asked == []


def test_a_download_goes_into_the_cache_and_happens_once(online, own_folder, files_below):
    assert locate(PLAYS) == cached_path()
    assert locate(PLAYS) == cached_path()
    assert cached_path().read_bytes() == CONTENT
    assert files_below(cache_folder()) == [cached_path()]
    assert files_below(own_folder) == []
    assert online.asked == [PLAYS.url]


@pytest.mark.parametrize("kind", ["missing", "folder"])
def test_a_given_path_that_is_no_file_is_named_and_nothing_else_is_tried(kind, own_folder, online, tmp_path):
    put(own_folder, CONTENT)
    given = tmp_path if kind == "folder" else tmp_path / "missing.txt"
    message, _ = refusal(given)
    assert repr(str(given)) in message
    assert "--data.path" in message
    assert online.asked == []


def test_a_folder_in_the_environment_that_does_not_exist_does_not_fall_through(monkeypatch, online, tmp_path):
    put(cache_folder() / "data", CONTENT)
    monkeypatch.setenv("JAXNLP_DATA", str(tmp_path / "typo"))
    message, _ = refusal()
    assert f"JAXNLP_DATA is {str(tmp_path / 'typo')!r}, which is not a directory" in message
    assert online.asked == []


def test_without_network_the_error_names_places_reason_and_remedy(own_folder):
    message, error = refusal()
    assert f"not in JAXNLP_DATA at {own_folder / PLAYS.relative_path}" in message
    assert f"not in the cache at {cached_path()}" in message
    assert f"the download from {PLAYS.url} failed (" in message
    assert "Name or service not known" in message
    assert "Max retries exceeded" not in message
    assert f"set JAXNLP_DATA to a folder that contains {PLAYS.relative_path}" in message
    assert "--data.path" in message
    assert isinstance(error.__cause__, requests.ConnectionError)
    assert isinstance(error, FileNotFoundError)


def test_without_network_the_error_says_that_the_environment_is_not_set():
    assert "JAXNLP_DATA is not set" in refusal()[0]


def test_a_reason_of_many_lines_is_told_in_one_short_line(network, monkeypatch):
    def fail(*_, **__):
        raise requests.ConnectionError("several\nlines " * 500)

    monkeypatch.setattr(network, "send", fail)
    message, _ = refusal()
    assert "(several lines several lines" in message
    assert len(message) < 1000


def test_an_unusable_cache_folder_is_told_like_a_failed_download(online):
    cache_folder().write_bytes(b"a file where the folder should be")
    message, _ = refusal()
    assert str(cache_folder()) in message
    assert "failed (" in message


def test_a_damaged_cached_file_is_downloaded_again_and_said_so(online, caplog):
    put(cache_folder() / "data", CONTENT[:-1])
    with caplog.at_level(logging.WARNING):
        assert locate(PLAYS) == cached_path()
    assert cached_path().read_bytes() == CONTENT
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert f"{cached_path()} is damaged" in caplog.text


def test_a_damaged_cached_file_is_never_returned_and_named_when_the_download_fails():
    put(cache_folder() / "data", CONTENT[:-1])
    assert f"{cached_path()} (damaged" in refusal()[0]


def test_a_download_has_time_limits_to_connect_and_to_read(online):
    locate(PLAYS)
    [(connect, read)] = online.timeouts
    assert 0 < connect <= 60
    assert 0 < read <= 300


@pytest.mark.parametrize("target", ["https://mirror.example.org/plays.txt", "//mirror.example.org/plays.txt"])
def test_a_redirect_within_https_is_followed(target, network):
    network.pages[PLAYS.url] = (302, {"Location": target}, b"")
    network.pages["https://mirror.example.org/plays.txt"] = (200, {}, CONTENT)
    assert locate(PLAYS).read_bytes() == CONTENT


@pytest.mark.parametrize("detour", [False, True])
def test_a_redirect_to_http_is_refused_before_it_is_followed(detour, network, files_below):
    insecure, mirror = "http://mirror.example.org/plays.txt", "https://mirror.example.org/plays.txt"
    network.pages[PLAYS.url] = (302, {"Location": mirror if detour else insecure}, b"")
    network.pages[mirror] = (302, {"Location": insecure}, b"")
    network.pages[insecure] = (200, {}, CONTENT)
    message, _ = refusal()
    assert f"redirected to {insecure}, which is not https" in message
    assert network.asked == ([PLAYS.url, mirror] if detour else [PLAYS.url])
    assert files_below(cache_folder()) == []


def test_a_page_that_is_gone_is_told_with_its_status(network, files_below):
    network.pages[PLAYS.url] = (404, {}, CONTENT)
    assert "404" in refusal()[0]
    assert files_below(cache_folder()) == []


@pytest.mark.parametrize("content", [b"", CONTENT[:-1], CONTENT + b"\n"])
def test_a_download_with_another_checksum_leaves_nothing(content, network, files_below):
    network.pages[PLAYS.url] = (200, {}, content)
    message, _ = refusal()
    assert f"SHA-256 is {hashlib.sha256(content).hexdigest()}, expected {PLAYS.sha256}" in message
    assert files_below(cache_folder()) == []


def test_a_server_that_never_ends_is_left_after_the_largest_size(network, files_below, monkeypatch):
    monkeypatch.setattr(download, "MOST_BYTES", 2**20)
    network.pages[PLAYS.url] = (200, {}, Body([bytes(2**16)] * 100, lambda: pytest.fail("all of it was read")))
    assert "it has more than 1 MB" in refusal()[0]
    assert files_below(cache_folder()) == []


def test_content_that_grows_without_end_is_not_unpacked(network, files_below, monkeypatch):
    monkeypatch.setattr(download, "MOST_BYTES", 2**20)
    packed = dataclasses.replace(PLAYS, relative_path="plays/input.txt.gz", url=f"{PLAYS.url}.gz")
    network.pages[packed.url] = (200, {}, gzip.compress(bytes(2**24)))
    with pytest.raises(DataNotFoundError, match="it is not a gzip file of at most 1 MB"):
        locate(packed)
    assert files_below(cache_folder()) == []


def test_redirects_in_a_circle_end(network, files_below):
    network.pages[PLAYS.url] = (302, {"Location": PLAYS.url}, b"")
    assert "30 redirects" in refusal()[0]
    assert files_below(cache_folder()) == []


HALF = 2**16


@pytest.fixture
def interrupted(network, files_below):
    """A download of which only the first half came."""

    def happens():
        assert any(path.stat().st_size for path in files_below(cache_folder())), "nothing had been written yet"
        raise ConnectionResetError("reset by peer")

    network.pages[PLAYS.url] = (200, {}, Body([CONTENT[:HALF], CONTENT[HALF:]], happens))
    assert "reset by peer" in refusal()[0]
    assert list(cached_path().parent.iterdir()) == []
    assert network.ranges == [None]


def test_an_interrupted_download_goes_on_where_it_stopped(interrupted, network, files_below):
    network.pages[PLAYS.url] = (302, {"Location": f"{PLAYS.url}?again"}, b"")
    network.pages[f"{PLAYS.url}?again"] = (206, {}, CONTENT[HALF:])
    assert locate(PLAYS).read_bytes() == CONTENT
    assert network.ranges[-1] == f"bytes={HALF}-"
    assert files_below(cache_folder()) == [cached_path()]


def test_ctrl_c_leaves_a_part_to_the_next_download_and_nothing_at_the_place_of_the_file(network):
    def happens():
        raise KeyboardInterrupt

    network.pages[PLAYS.url] = (200, {}, Body([CONTENT[:HALF], CONTENT[HALF:]], happens))
    with pytest.raises(KeyboardInterrupt):
        locate(PLAYS)
    assert list(cached_path().parent.iterdir()) == []
    network.pages[PLAYS.url] = (206, {}, CONTENT[HALF:])
    assert locate(PLAYS).read_bytes() == CONTENT


def test_a_server_without_ranges_sends_the_whole_file_again(interrupted, online, files_below):
    assert locate(PLAYS).read_bytes() == CONTENT
    assert files_below(cache_folder()) == [cached_path()]


def test_a_server_that_is_busy_loses_no_part(interrupted, network):
    network.pages[PLAYS.url] = (503, {}, b"busy")
    assert "503" in refusal()[0]
    network.pages[PLAYS.url] = (206, {}, CONTENT[HALF:])
    assert locate(PLAYS).read_bytes() == CONTENT


@pytest.mark.parametrize(("status", "words"), [(206, "SHA-256 is"), (416, "416")])
def test_a_part_that_cannot_go_on_is_forgotten(status, words, interrupted, network, files_below):
    network.pages[PLAYS.url] = (status, {}, CONTENT)
    assert words in refusal()[0]
    assert files_below(cache_folder()) == []
    network.pages[PLAYS.url] = (200, {}, CONTENT)
    assert locate(PLAYS).read_bytes() == CONTENT
    assert network.ranges[-1] is None


def test_a_process_killed_in_the_download_leaves_nothing_at_the_place_of_the_file(online, run_and_die, files_below):
    script = """
import os, sys
import pooch
from data.download import RemoteFile, locate

def die_halfway(self, url, output_file, pooch):
    output_file.write(b"half")
    output_file.flush()
    os._exit(9)

pooch.HTTPDownloader.__call__ = die_halfway
locate(RemoteFile(*sys.argv[1:]))
"""
    run_and_die(script, PLAYS.name, PLAYS.relative_path, PLAYS.url, PLAYS.sha256)
    assert [path.read_bytes() for path in files_below(cache_folder())] == [b"half"]
    assert not cached_path().exists()
    assert locate(PLAYS).read_bytes() == CONTENT


def test_two_downloads_at_once_both_end_with_the_whole_file(network, files_below):
    def the_other_process():
        network.pages[PLAYS.url] = (200, {}, CONTENT)
        assert locate(PLAYS).read_bytes() == CONTENT

    network.pages[PLAYS.url] = (200, {}, Body([CONTENT[: 2**16], CONTENT[2**16 :]], the_other_process))
    assert locate(PLAYS).read_bytes() == CONTENT
    assert network.asked == [PLAYS.url] * 2
    assert files_below(cache_folder()) == [cached_path()]


@pytest.mark.skipif(os.name != "posix", reason="modes are POSIX")
def test_others_may_read_a_download_where_the_umask_lets_them(online, umask):
    with umask(0o022):
        assert stat.S_IMODE(locate(PLAYS).stat().st_mode) == 0o644


@pytest.mark.realdata
def test_the_checksum_of_tiny_shakespeare_is_that_of_the_published_text():
    published = REAL_DATA / TINY_SHAKESPEARE.relative_path
    if not published.is_file():
        pytest.skip(f"no file at {published}")
    assert hashlib.sha256(published.read_bytes()).hexdigest() == TINY_SHAKESPEARE.sha256


def locate_set(path=None, name="set", **options):
    return locate_folder(name, path, holds="a.txt and b.txt", otherwise="go without", **options)


def refused_folder(*args, **options):
    with pytest.raises(DataNotFoundError) as caught:
        locate_set(*args, **options)
    return str(caught.value)


def test_a_folder_is_the_given_one_then_the_users_then_the_cached_one(own_folder, tmp_path):
    cached = cache_folder() / "data" / "set"
    cached.mkdir(parents=True)
    assert locate_set() == cached
    (own_folder / "set").mkdir()
    assert locate_set() == own_folder / "set"
    assert locate_set(str(tmp_path)) == tmp_path


def test_a_given_folder_that_does_not_exist_is_named_with_what_it_must_contain(tmp_path):
    absent = tmp_path / "absent"
    remedy = "give a folder that contains a.txt and b.txt with --data.path, or go without"
    assert refused_folder(str(absent)) == f"there is no folder {absent}; {remedy}"
    absent.touch()
    remedy = "go without, or give a folder that contains a.txt and b.txt with --data.path"
    assert refused_folder(str(absent)) == f"{absent} is a file, not a folder; {remedy}"


def test_a_folder_that_is_not_found_is_named_with_the_places_and_the_remedies(monkeypatch, own_folder):
    cached = cache_folder() / "data"
    assert refused_folder() == (
        f"the data set set is not found: there is no folder {own_folder / 'set'}, and there is no folder "
        f"{cached / 'set'}; copy a.txt and b.txt to {own_folder / 'set'}, give its folder with --data.path, or go "
        "without"
    )
    monkeypatch.delenv("JAXNLP_DATA")
    assert refused_folder(takes_path=False) == (
        f"the data set set is not found: JAXNLP_DATA is not set, and there is no folder {cached / 'set'}; copy a.txt "
        "and b.txt to a folder set in a folder that JAXNLP_DATA names, or go without"
    )


def test_an_error_names_the_command_or_the_page_that_a_known_data_set_comes_from(own_folder):
    found = refused_folder(name="multi30k_en_de")
    assert f"download it from {DATA_SETS['multi30k_en_de'].page} with jaxnlp download multi30k_en_de" in found
    found = refused_folder(name="conll2003_ner")
    page = DATA_SETS["conll2003_ner"].page
    assert (
        f"get it from {page}, as docs/data.md says, and copy a.txt and b.txt to {own_folder / 'conll2003_ner'}" in found
    )
