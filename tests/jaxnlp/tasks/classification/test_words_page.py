import json

import numpy as np
import pytest

from configs import text_rnn
from jaxnlp.__main__ import main
from jaxnlp.tasks.classification.words_page import marked, render_page
from train.config import update
from train.loop import fit

from .conftest import write_table


def test_a_word_is_as_dark_as_its_weight_and_is_escaped():
    page = render_page([["good", "<b>"]], [np.array([0.8, 0.2])], ["yes & no"], "a & b")
    assert '--share: 100%" title="0.800">good<' in page
    assert '--share: 25%" title="0.200">&lt;b&gt;<' in page
    assert "Attention of a &amp; b" in page
    assert "yes &amp; no" in page
    assert "://" not in page


def test_weighty_words_are_marked():
    assert marked(["a", "b", "c"], np.array([0.5, 0.4, 0.1])) == (("a ", True), ("b ", False), ("c ", False))


@pytest.mark.thorough
def test_the_attention_of_a_recurrent_network_is_in_the_report_and_on_a_page(tmp_path, capsys):
    write_table(tmp_path / "table.csv", "class")
    config = update(
        text_rnn.get_config(),
        **{
            **{"data.source": "table", "data.path": str(tmp_path / "table.csv"), "data.validation_fraction": 0.2},
            **{"data.max_length": 16, "model.embedding_width": 16, "model.widths": (8,)},
            **dict.fromkeys(("total_steps", "evaluate_every_steps", "checkpoint_every_steps"), 60),
            **{"optimizer.learning_rate": 2e-2, "optimizer.schedule.warmup": 5, "data.batch_size": 32},
        },
    )
    fit(config, tmp_path / "run")
    rows = [json.loads(line) for line in (tmp_path / "run" / "sections.jsonl").read_text().splitlines()]
    (section,) = [row for row in rows if row["name"] == "Attention of predictions"]
    words = {piece.strip() for paragraph in section["content"]["paragraphs"] for piece, strong in paragraph if strong}
    assert words & {"paint", "run"}
    capsys.readouterr()
    out = tmp_path / "page.html"
    assert main(["attention", str(tmp_path / "run"), "the paint cat sat", "run the cat", "--out", str(out)]) == 0
    page = out.read_text()
    assert page.count("<p>") == 3
    assert page.index(">paint<") < page.index(">run<")
    texts = ["", "the cat", " ", "run " * 20]
    assert main(["attention", str(tmp_path / "run"), *texts, "--out", str(out)]) == 0
    notes = capsys.readouterr().err
    assert "1 of 4 texts was truncated to 16 tokens; the first is text 4" in notes
    assert "2 of 4 texts are blank and have no answer; the first is text 1" in notes
    assert out.read_text().count("<p>") == 3
    assert main(["attention", str(tmp_path / "run"), "", " ", "--out", str(tmp_path / "none.html")]) == 2
    assert "all texts are blank; give a text with characters" in capsys.readouterr().err
    assert not (tmp_path / "none.html").exists()
    assert main(["attention", str(tmp_path / "run"), "the cat", "--resize"]) != 0
    assert "--resize applies only to images" in capsys.readouterr().err
