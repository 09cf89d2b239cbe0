"""The task on a short run: what is trained, scored, drawn and written."""

import dataclasses
import json
import re
import xml.etree.ElementTree

import jax
import numpy as np
import pytest

import jaxnlp.saving.atomic_files
from data.small_grammar import grammar_sentences
from data.treebank import Treebank
from jaxnlp.__main__ import main as jaxnlp_main
from jaxnlp.corpus import Split
from jaxnlp.models.gpt import GPTConfig
from jaxnlp.models.graph_parser import GraphParserConfig
from jaxnlp.runs import load_run
from jaxnlp.tasks.parsing import Parsing
from jaxnlp.tasks.parsing.scores import SCORES
from jaxnlp.text.conllu import parse_conllu, sentence_of, tree_problem, written
from train.evaluate import main as evaluate_main


@pytest.fixture(scope="module", autouse=True)
def standard_promotion():
    """The setting of users; other tests are stricter."""
    with jax.numpy_dtype_promotion("standard"):
        yield


def rows(run, split):
    lines = (run / "metrics.jsonl").read_text().splitlines()
    return [row for row in map(json.loads, lines) if row["split"] == split]


@pytest.fixture(scope="module")
def treebank(tmp_path_factory):
    """A file of sentences that training does not have, with a multiword token and an empty node in the first one."""
    sentences = [
        sentence_of(*(one[i] for i in (0, 1, 3, 4)), name=f"s{number}")
        for number, one in enumerate(grammar_sentences(30, seed=99), 1)
    ]
    lines = list(sentences[0].lines)
    lines.insert(2, "1-2\tboth" + "\t_" * 8)
    lines.insert(4, "1.1\tempty" + "\t_" * 8)
    sentences[0] = dataclasses.replace(sentences[0], lines=tuple(lines))
    path = tmp_path_factory.mktemp("treebank") / "new.conllu"
    path.write_text(written(sentences), encoding="utf-8")
    return path


def test_a_short_run_learns_to_parse_and_measures_what_is_declared(run):
    found = rows(run, "validation")[-1]
    assert {"loss", "transition_accuracy", "exact_match", *SCORES} <= found.keys()
    assert found["uas"] > found["las"] > 0.7
    training = rows(run, "train")
    assert training[-1]["objective"] > training[-1]["loss"] > 0  # label smoothing and L2 are in the objective
    assert training[-1]["loss"] < 0.3 < training[0]["loss"]


def test_the_report_has_tables_by_relation_and_length_and_wrong_sentences(run):
    page = (run / "report.html").read_text(encoding="utf-8")
    for title in ("Relations", "Length of arcs", "Relations taken for others", "Sentences with the most wrong words"):
        assert f"<h2>{title} " in page, title
    assert "nsubj:pass" not in re.findall(r"<td>([a-z:]+)</td>", page)  # tables are of universal relations


@pytest.mark.thorough
def test_a_file_is_scored_with_a_beam_and_its_predictions_keep_all_lines(run, treebank, tmp_path, capsys):
    out = tmp_path / "out.conllu"
    command = [str(run), "validation", "--file", str(treebank), "--predictions", str(out), "--num-beams", "4"]
    assert evaluate_main(command) == 0
    assert float(re.search(r" las ([\d.]+)", capsys.readouterr().out)[1]) > 0.7
    before, after = (path.read_text(encoding="utf-8").splitlines() for path in (treebank, out))
    assert len(before) == len(after)
    for one, other in zip(before, after, strict=True):
        fields, new = one.split("\t"), other.split("\t")
        assert [*fields[:6], *fields[8:]] == [*new[:6], *new[8:]]
        if not fields[0].isdigit():
            assert fields == new
    for sentence in parse_conllu(out.read_text(encoding="utf-8"), "out"):
        assert tree_problem(sentence.heads) is None


def test_a_sentence_without_a_tree_is_parsed_at_its_place_and_not_scored(run, treebank, tmp_path, capsys):
    path, out, parsed = (tmp_path / f"{name}.conllu" for name in ("mixed", "out", "parsed"))
    first, second, third, *_ = parse_conllu(treebank.read_text(encoding="utf-8"), "treebank")
    bare = "".join(
        "\t".join([*line.split("\t")[:6], "_", "_", "_", "_"]) + "\n" for line in second.lines if "\t" in line
    )
    path.write_text(written([first]) + bare + "\n" + written([third]), encoding="utf-8")
    assert evaluate_main([str(run), "--file", str(path), "--predictions", str(out)]) == 0
    assert f"({len(first.words) + len(third.words)} words)" in capsys.readouterr().out
    assert jaxnlp_main(["parse", str(run), "--conllu", str(path), "--out", str(parsed)]) == 0
    assert out.read_text(encoding="utf-8") == parsed.read_text(encoding="utf-8")


@pytest.mark.thorough
def test_sentences_of_a_file_are_parsed_printed_and_drawn(run, treebank, tmp_path, capsys):
    out, svg, page = (tmp_path / name for name in ("out.conllu", "trees.svg", "trees.html"))
    options = ["--conllu", str(treebank), "--out", str(out), "--svg", str(svg), "--html", str(page)]
    assert jaxnlp_main(["parse", str(run), *options]) == 0
    printed, error = capsys.readouterr()
    assert error.endswith(f"trees in {out}\ntrees in {svg}\ntrees in {page}\n")
    sentences = parse_conllu(out.read_text(encoding="utf-8"), "out")
    assert len(printed.split("\n\n")) == len(sentences) == 30
    for block, sentence in zip(printed.split("\n\n"), sentences, strict=True):
        numbers = [int(line.rpartition(" ")[2]) for line in block.strip().splitlines()]
        assert sorted(numbers) == list(range(1, len(sentence.words) + 1))
        assert sentence.relations[numbers[0] - 1] == "root"
    drawn = xml.etree.ElementTree.fromstring(svg.read_text(encoding="utf-8"))
    texts = [text.text for text in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert len(texts) == 3 * sum(len(sentence.words) for sentence in sentences)  # words, tags and relations
    assert page.read_text(encoding="utf-8").count('<div class="scroll">') == 30


@pytest.mark.thorough
def test_json_has_an_object_a_sentence(run, treebank, capsys):
    assert jaxnlp_main(["parse", str(run), "--conllu", str(treebank), "--json"]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(found) == 30
    for one in found:
        assert one.keys() == {"name", "words", "tags", "heads", "relations"}
        assert tree_problem(one["heads"]) is None
        assert {len(one[name]) for name in ("words", "tags", "heads", "relations")} == {len(one["words"])}


def test_texts_without_tags_are_refused_by_a_parser_that_reads_them(run, capsys):
    assert jaxnlp_main(["parse", str(run), "The dog sleeps."]) == 2
    assert "error: sentence 1: this parser reads tags (upos), and the words have none" in capsys.readouterr().err


def test_a_file_without_tags_is_not_scored_as_if_its_tags_were_unknown(run, tmp_path, capsys):
    path = tmp_path / "x.conllu"
    path.write_text(written([sentence_of(["It", "sleeps"], heads=[2, 0], relations=["nsubj", "root"])]))
    assert jaxnlp_main(["evaluate", str(run), "--file", str(path)]) == 2
    assert f"{path}, line 1, sentence 1: this parser reads tags (upos)" in capsys.readouterr().err


def test_a_sentence_of_two_thousand_words_is_refused_with_its_line(run, tmp_path, capsys):
    long = sentence_of(["dog"] * 2_000, ["NOUN"] * 2_000, range(2_000), ["root"] + ["conj"] * 1_999, name="long")
    path = tmp_path / "long.conllu"
    path.write_text(written([sentence_of(["x"], ["X"], [0], ["root"]), long]))
    assert jaxnlp_main(["evaluate", str(run), "--file", str(path)]) == 2
    message = f"{path}, line 5, sentence long: a sentence of 2,000 words exceeds the maximum of 32 words"
    assert message in capsys.readouterr().err


def test_a_sentence_that_is_too_long_has_no_tree_and_the_others_have_theirs(run, tmp_path, capsys):
    long = sentence_of(["dog"] * 40, ["NOUN"] * 40, range(40), ["root"] + ["conj"] * 39, name="long")
    path, out, svg = (tmp_path / name for name in ("in.conllu", "out.conllu", "out.svg"))
    short = [sentence_of(["Anna", "sleeps"], ["PROPN", "VERB"], name=name) for name in "ab"]
    path.write_text(written([short[0], long, short[1]]))
    assert jaxnlp_main(["parse", str(run), "--conllu", str(path), "--out", str(out), "--svg", str(svg)]) == 0
    printed, error = capsys.readouterr()
    message = f"{path}, line 6, sentence long: a sentence of 40 words exceeds the maximum of 32 words"
    assert f"note: 1 of 3 sentences has no tree; {message}" in error
    blocks = printed.split("\n\n")
    assert blocks[1] == ""
    assert ["sleeps" in block for block in blocks] == [True, False, True]
    first, without, last = parse_conllu(out.read_text(), "out")
    assert (without.heads, without.words) == (None, long.words)
    assert None not in (first.heads, last.heads)
    assert svg.read_text().count("sleeps") == 2
    assert jaxnlp_main(["parse", str(run), "--conllu", str(path), "--json"]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [one["heads"] is None for one in found] == [False, True, False]
    path.write_text(written([long]))
    assert jaxnlp_main(["parse", str(run), "--conllu", str(path)]) == 2
    printed, error = capsys.readouterr()
    assert printed.strip() == ""
    assert error.count("line 1, sentence long: a sentence of 40 words") == 1


@pytest.mark.thorough
def test_the_trees_of_the_file_need_not_be_right(run, tmp_path, capsys):
    path, out = tmp_path / "in.conllu", tmp_path / "out.conllu"
    path.write_text(written([sentence_of(["Anna", "sleeps"], ["PROPN", "VERB"], (2, 1), ["dep", "dep"])]))
    assert jaxnlp_main(["parse", str(run), "--conllu", str(path), "--out", str(out)]) == 0
    (sentence,) = parse_conllu(out.read_text(), "out")
    assert sorted(sentence.heads)[0] == 0


def test_missing_tags_are_found_before_any_sentence_is_parsed(run, tmp_path, capsys):
    path, out = tmp_path / "in.conllu", tmp_path / "out.conllu"
    path.write_text(written([sentence_of(["It", "sleeps"], name="first")] * 1_100))
    out.write_text("before")
    assert jaxnlp_main(["parse", str(run), "--conllu", str(path), "--out", str(out)]) == 2
    printed, error = capsys.readouterr()
    assert (printed, out.read_text()) == ("", "before")
    assert "sentence first: this parser reads tags (upos), and the words have none" in error


def test_words_without_a_tag_are_counted_and_the_others_keep_theirs(run, tmp_path, capsys):
    path = tmp_path / "in.conllu"
    path.write_text(written([sentence_of(["It", "sleeps"], tags, name="x") for tags in (["PRON", "_"], ["_", "_"])]))
    assert jaxnlp_main(["parse", str(run), "--conllu", str(path), "--json"]) == 0
    printed, error = capsys.readouterr()
    assert [json.loads(line)["tags"] for line in printed.splitlines()] == [["PRON", "_"], ["_", "_"]]
    note = "3 of 4 words have no known tag and are read with the unknown tag"
    assert f"note: {note} (first: {path}, line 1, sentence x)" in error


def test_a_sentence_of_comments_has_no_words_and_stops_no_others(run, tmp_path, capsys):
    path = tmp_path / "in.conllu"
    path.write_text("# sent_id = empty\n\n" + written([sentence_of(["It", "sleeps"], ["PRON", "VERB"], name="x")]))
    assert jaxnlp_main(["parse", str(run), "--conllu", str(path), "--json"]) == 0
    printed, error = capsys.readouterr()
    assert [len(json.loads(line)["heads"]) for line in printed.splitlines()] == [0, 2]
    assert f"note: 1 of 2 sentences has no words; {path}, line 1, sentence empty\n" in error


def test_a_picture_that_cannot_be_written_is_found_first_or_costs_no_other_file(
    run, treebank, tmp_path, capsys, monkeypatch
):
    out, page = tmp_path / "out.conllu", tmp_path / "trees.html"
    command = ["parse", str(run), "--conllu", str(treebank), "--out", str(out), "--html", str(page), "--svg"]
    assert jaxnlp_main([*command, str(tmp_path)]) == 2
    printed, error = capsys.readouterr()
    assert (printed, f"error: {tmp_path}: is a directory" in error) == ("", True)
    assert not out.exists()
    write = jaxnlp.saving.atomic_files.write_file
    failing = lambda path, content: write(tmp_path if path.suffix == ".svg" else path, content)  # noqa: E731
    monkeypatch.setattr("jaxnlp.tasks.parsing.commands.write_file", failing)
    assert jaxnlp_main([*command, str(tmp_path / "x.svg")]) == 2
    assert "is a directory" in capsys.readouterr().err
    assert len(parse_conllu(out.read_text(), "out")) == 30
    assert page.read_text().count('<div class="scroll">') == 30


def test_what_was_parsed_is_written_when_a_later_sentence_fails(run, treebank, tmp_path, capsys, monkeypatch):
    sentences = parse_conllu(treebank.read_text(), str(treebank))

    def until_failure(self, trained):
        yield from sentences[:4]
        raise OSError("the disk is gone")

    monkeypatch.setattr("jaxnlp.tasks.parsing.commands.chunks", lambda items: ([item] for item in items))
    monkeypatch.setattr("jaxnlp.tasks.parsing.commands.Parse._sentences", until_failure)
    files = [tmp_path / name for name in ("out.conllu", "trees.svg", "trees.html")]
    files[0].write_text("the trees of yesterday")
    options = [f"--{file.suffix[1:].replace('conllu', 'out')}={file}" for file in files]
    assert jaxnlp_main(["parse", str(run), *options]) == 2
    assert files[0].read_text() == "the trees of yesterday"
    files[0].unlink()
    error = capsys.readouterr().err
    assert "the disk is gone" in error
    files = [tmp_path / name for name in ("out.partial.conllu", "trees.partial.svg", "trees.partial.html")]
    for file in files:
        assert f"note: {file} has only sentences before the failure" in error
    assert len(parse_conllu(files[0].read_text(), "out")) == 4
    xml.etree.ElementTree.fromstring(files[1].read_text())
    assert files[2].read_text().count('<div class="scroll">') == 4
    assert {file.name for file in tmp_path.iterdir()} == {file.name for file in files}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"l2": -1.0}, "task.l2 must be finite"),
        ({"label_smoothing": 1.0}, r"task.label_smoothing must be in \[0, 1\)"),
    ],
)
def test_wrong_fields_are_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        Parsing(**fields)


def test_a_model_that_is_no_parser_and_an_option_of_transitions_for_a_graph_parser_are_refused():
    with pytest.raises(ValueError, match="parsing needs a ParserConfig or GraphParserConfig, got model GPTConfig"):
        Parsing().check(GPTConfig(), Treebank())
    with pytest.raises(ValueError, match=r"task\.label_smoothing is for parsers by transitions"):
        Parsing(label_smoothing=0.1).check(GraphParserConfig(), Treebank())


@pytest.mark.thorough
def test_the_loss_is_the_cross_entropy_over_allowed_transitions_and_padding_counts_for_nothing(run):
    trained = load_run(run)
    corpus = Treebank(sentences=20, held_out_sentences=6, lengths=(), max_length=32, minimum_count=1).load(
        0, trained.processor
    )
    batch = corpus.splits["validation"].batches[0]
    objective = trained.task.objective(trained.model, None)
    scalar, (metrics, _) = jax.jit(lambda params, batch: objective.loss(params, batch, None, ()))(trained.params, batch)
    relations = trained.processor.num_relations
    labels = np.full((*batch["nodes"].shape[:2], 12), relations)
    dependents = np.asarray(batch["nodes"])[:, :, 6:]
    for place in np.argwhere(dependents >= 0):
        labels[tuple(place)] = batch["relations"][place[0], dependents[tuple(place)]]
    logits = np.asarray(
        jax.jit(trained.model.apply)({"params": trained.params}, batch["nodes"], labels, batch["words"], batch["tags"])
    )
    nll = []
    for row, step in np.argwhere(batch["loss_mask"]):
        shift, reduce, left, right, root = np.asarray(batch["legal"])[row, step]
        allowed = [shift, reduce, False, *[left] * (relations - 1), root, *[right] * (relations - 1)]
        found = logits[row, step]
        nll.append(np.logaddexp.reduce(found[allowed]) - found[batch["transitions"][row, step]])
    assert metrics["loss"][1] == len(nll) == 2 * sum(len(one.words) for one in corpus.splits["validation"].examples)
    np.testing.assert_allclose(metrics["loss"][0], sum(nll), rtol=1e-4)
    np.testing.assert_allclose(scalar, np.mean(nll), rtol=1e-4)
    assert not (set(trained.task.metrics(trained.processor, Split())) & {*SCORES})
