import os
import subprocess
import sys

import pytest

from tests.pages import ROOT


@pytest.mark.thorough
@pytest.mark.parametrize(
    "words", [["jaxnlp", "train", "--list"], ["jaxnlp", "train", "é☃"], ["train.start", "é☃"]], ids="-".join
)
def test_commands_read_and_write_utf_8_where_the_locale_is_ascii(words):
    environ = os.environ | {"LC_ALL": "C", "PYTHONUTF8": "0"}
    command = [sys.executable, "-m", *words]
    done = subprocess.run(command, env=environ, cwd=ROOT, capture_output=True, encoding="utf-8", check=False)
    expected = words[-1] if words[-1] != "--list" else "é"
    assert expected in done.stdout + done.stderr
    assert "codec" not in done.stderr
