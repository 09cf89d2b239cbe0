import json

import pytest

from jaxnlp.tasks.tagging.evaluators import conll, whole_sentences
from jaxnlp.text.tagger_processor import TaggedSentence
from train.evaluate import main


def test_the_parts_of_a_divided_sentence_are_scored_and_written_as_one():
    parts = [
        TaggedSentence("1", ("a",), ("O",)),
        TaggedSentence("2.1", ("b", "c"), ("O", "B-X")),
        TaggedSentence("2.2", ("d",), ("E-X",)),
        TaggedSentence("12", ("e",), ("O",)),
    ]
    examples, labels = whole_sentences(parts, [["O"], ["O", "S-X"], ["S-X"], ["O"]])
    assert [one.name for one in examples] == ["1", "2", "12"]
    assert (examples[1].words, examples[1].labels) == (("b", "c", "d"), ("O", "B-X", "E-X"))
    assert labels == [["O"], ["O", "S-X", "S-X"], ["O"]]
    assert conll(examples, labels).count("\n\n") == 2
    (unlabelled,), _ = whole_sentences([TaggedSentence("1.1", ("a",)), TaggedSentence("1.2", ("b",))], [["O"], ["O"]])
    assert (unlabelled.words, unlabelled.labels) == (("a", "b"), None)


def test_a_long_sentence_of_a_file_keeps_its_lines(run, tmp_path):
    path, out = tmp_path / "x.conll", tmp_path / "out.conll"
    path.write_text("dog\n" * 60 + "\nAnna\n")
    assert main([str(run), "--file", str(path), "--predictions", str(out)]) == 0
    assert [line.split("\t")[0] for line in out.read_text().splitlines()] == path.read_text().splitlines()


def test_a_run_learns_and_its_report_shows_types_errors_and_transitions(run):
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    last = rows[-1]["validation"] if "validation" in rows[-1] else rows[-1]
    f1 = next(value for name, value in last.items() if name.rsplit("/", 1)[-1] == "f1" and "/" not in name[:-3])
    assert f1 > 0.6
    sections = {
        json.loads(line)["name"]: json.loads(line) for line in (run / "sections.jsonl").read_text().splitlines()
    }
    assert set(sections) >= {"Scores of each type", "Confusion of types", "Learnt transitions"}
    heat = sections["Learnt transitions"]["content"]
    assert heat["rows"][0] == "(begin)"
    assert heat["columns"][-1] == "(end)"
    # An entity that has begun goes on or ends: nothing else has a share.
    begun = heat["weights"][heat["rows"].index("B-PER")]
    assert {name for name, share in zip(heat["columns"], begun, strict=True) if share} <= {"I-PER", "E-PER"}
    assert sum(begun) > 0.99


@pytest.mark.thorough
def test_files_with_labels_are_scored_and_without_are_predicted(run, tmp_path, capsys):
    path = tmp_path / "x.conll"
    path.write_text("Anna B-PER\nvisits O\nNew B-LOC\nYork I-LOC\n. O\n")
    out = tmp_path / "out.conll"
    assert main([str(run), "--file", str(path), "--predictions", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "f1 1.0000  (2 entities)" in printed
    assert out.read_text() == "".join(  # in the scheme of the file
        f"{line} {line.split()[1]}\n".replace(" ", "\t") for line in path.read_text().splitlines()
    )
    path.write_text("Anna\nvisits\nNew\nYork\n.\n")
    assert main([str(run), "--file", str(path), "--predictions", str(out)]) == 0
    assert out.read_text().splitlines()[2:4] == ["New\tB-LOC", "York\tE-LOC"]


def test_sentences_without_labels_are_predicted_in_their_places_and_not_scored(run, tmp_path, capsys):
    path, out = tmp_path / "x.jsonl", tmp_path / "out.conll"
    first, second = '{"words": ["Anna", "sleeps"], "labels": ["B-PER", "O"]}', '{"words": ["Oslo"]}'
    path.write_text("\n".join([second, first, second, '{"words": []}', first]) + "\n")
    assert main([str(run), "--file", str(path), "--predictions", str(out)]) == 0
    assert "(4 words)" in capsys.readouterr().out
    sentences = [[line.split("\t") for line in block.splitlines()] for block in out.read_text().split("\n\n")]
    assert [[row[:2] for row in rows] for rows in sentences] == [
        [["Oslo", "_"]],
        [["Anna", "B-PER"], ["sleeps", "O"]],
        [["Oslo", "_"]],
        [["Anna", "B-PER"], ["sleeps", "O"]],
    ]
    assert {len(row) for rows in sentences for row in rows} == {3}
    assert [sentences[index][0][2][:2] for index in (0, 2)] == ["B-"] * 2  # in the scheme of the others, not S-
