import re
import subprocess

from train.run.machine import commit


def test_a_folder_that_the_checkout_around_it_does_not_track_has_no_commit(tmp_path):
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=b"]
    (tmp_path / "ours.txt").touch()
    for words in (["init", "--quiet"], ["add", "ours.txt"], ["commit", "--quiet", "-m", "one"]):
        subprocess.run([*git, *words], check=True)
    (tmp_path / "installed").mkdir()
    (tmp_path / "installed" / "module.py").touch()
    assert re.fullmatch("[0-9a-f]{40}", commit(tmp_path))
    assert commit(tmp_path / "installed") is None


def test_commit_is_unknown_without_git(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert commit() is None
