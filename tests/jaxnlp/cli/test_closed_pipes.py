import os
import subprocess
import sys

import pytest

from jaxnlp.cli.closed_pipes import end_on_closed_pipe

START = "import sys; from jaxnlp.cli.closed_pipes import end_on_closed_pipe; end_on_closed_pipe()\n"
PRINTS = {
    "once": "print('x')",
    "much": "print('x\\n' * 100_000)",
    "within_a_handler": "try:\n    print('x', flush=True)\nexcept OSError as error:\n    sys.exit(repr(error))",
    "with_rich": "from rich.console import Console; Console().print('x\\n' * 10)",
}


def run(program, root, stdout):
    return subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"PYTHONPATH": str(root)},
        stdout=stdout,
        stderr=subprocess.PIPE,
        check=False,
    )


@pytest.mark.parametrize("name", PRINTS)
def test_a_program_whose_reader_has_gone_ends_silently(name, root):
    reader, writer = os.pipe()
    os.close(reader)
    ended = run(START + PRINTS[name], root, writer)
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (0, b"")


def test_a_program_whose_reader_stays_prints_everything(root):
    ended = run(START + "print('é\\n' * 9_999, end='')", root, subprocess.PIPE)
    assert (ended.stdout.decode(), ended.stderr) == ("é\n" * 9_999, b"")


def test_output_that_is_captured_is_left_alone(capsys):
    before = sys.stdout
    end_on_closed_pipe()
    assert sys.stdout is before
