import base64
import html
import json
import re

import numpy as np
import pytest

from jaxnlp.__main__ import main
from jaxnlp.tasks.text_tasks.predictions import attend_text


def run(place, *arguments):
    return main(["attention", str(place), *arguments])


def held_by(page):
    (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, flags=re.DOTALL)
    held = json.loads(data)
    count = len(held["pieces"])
    weights = np.frombuffer(base64.b64decode(held["weights"]), "<u2").reshape(held["layers"], held["heads"], count, -1)
    return held["pieces"], weights / 65535


def test_the_page_shows_what_the_encoder_attends_to(trained, tmp_path, capsys):
    out = tmp_path / "new" / "page.html"
    row = ("The cats ate </script> a fish.", "<b>dog</b>")
    assert run(trained.folder, row[0], "--pair", row[1], "--out", str(out)) == 0
    assert capsys.readouterr() == (f"{out}\n", "")
    page = out.read_text(encoding="utf-8")
    pieces, weights = held_by(page)
    expected = attend_text(trained, *row)
    assert pieces == expected.tokens
    np.testing.assert_allclose(weights, expected.weights, atol=1e-5)
    assert f'<h1 dir="auto">{html.escape(" | ".join(row))}</h1>' in page
    assert page.count("</script>") == 2


def test_long_texts_are_truncated_with_a_note(trained, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run(trained.folder, "the cat sat on the mat", "--max-length", "5") == 0
    assert capsys.readouterr() == ("attention.html\n", "note: the text was truncated to 5 tokens\n")
    assert held_by((tmp_path / "attention.html").read_text())[0] == ["[CLS]", "the", "cat", "sat", "[SEP]"]


def test_the_page_names_the_folder_also_from_within(trained, tmp_path, monkeypatch):
    monkeypatch.chdir(trained.folder)
    assert run(".", "the cat", "--out", str(tmp_path / "page.html")) == 0
    assert trained.folder.name in (tmp_path / "page.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["RUN", " "], "text 1 is blank"),
        (["RUN", "a", "--pair", ""], "text 1 is blank, or its pair is"),
        (["RUN", "a", "--max-length", "2"], "max_length must be at least 3, got 2"),
        (["GPT", "a"], "cannot attention; it has: generate"),
    ],
)
def test_an_impossible_request_is_refused_and_nothing_is_written(
    trained, finished_run, tmp_path, capsys, arguments, message
):
    places = {"RUN": trained.folder, "GPT": finished_run.folder}
    out = tmp_path / "page.html"
    command = [str(places.get(argument, argument)) for argument in arguments]
    assert main(["attention", *command, "--out", str(out)]) == 2
    shown, err = capsys.readouterr()
    assert (shown, out.exists()) == ("", False)
    assert message in err
