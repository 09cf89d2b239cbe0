import json
import math
import re

import numpy as np
import pytest
import torch

import jaxnlp
from jaxnlp.__main__ import main
from jaxnlp.tasks.language_model.text_scores import Perplexity, _losses_of, perplexity, score_text
from jaxnlp.text import UnknownTokenError
from tests.decoder_folders import write_folder
from tests.encoder_folders import TEXTS


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """A folder of a tiny GPT-2 with 40 positions, its model and its tokenizer in Transformers, and ours."""
    folder = tmp_path_factory.mktemp("tiny") / "gpt2"
    model, tokenizer = write_folder(folder)
    return folder, model, tokenizer, jaxnlp.load_pretrained(folder)


def losses(model, ids):
    """Losses of Transformers, of each token but the first."""
    with torch.no_grad():
        scores = model(torch.tensor([ids])).logits[0, :-1].log_softmax(-1)
    return -scores[torch.arange(len(ids) - 1), torch.tensor(ids[1:])].numpy()


def test_the_perplexity_of_a_text_is_that_of_transformers(tiny):
    _, model, tokenizer, run = tiny
    texts = [TEXTS[0], "cat"]
    expected = [math.exp(losses(model, tokenizer(text)["input_ids"]).mean()) for text in texts]
    np.testing.assert_allclose(run.perplexity(texts), expected, rtol=1e-5)
    np.testing.assert_allclose(run.perplexity(texts[1]), expected[1], rtol=1e-5)


def test_after_a_warm_up_no_text_compiles_a_program(tiny):
    run = tiny[3]
    run.warm_up("perplexity")
    program = _losses_of(run.model)
    compiled = program._cache_size()
    run.perplexity([" ".join(TEXTS[:1] * count) for count in (1, 3, 9)])
    assert program._cache_size() == compiled == 3  # 16, 32 and 40 tokens


def test_only_the_tokens_after_the_given_text_are_scored(tiny):
    _, model, tokenizer, run = tiny
    given, text = (tokenizer(part)["input_ids"] for part in ("The cat", " sat on the mat."))
    expected = losses(model, given + text)[len(given) - 1 :]
    nll, count, _ = score_text(run, " sat on the mat.", "The cat")
    assert count == len(text)
    np.testing.assert_allclose(nll, expected.sum(), rtol=1e-5)


def test_a_text_that_is_longer_than_the_context_has_half_a_context_before_each_later_token(tiny):
    _, model, tokenizer, run = tiny
    ids = tokenizer(" ".join(TEXTS[:2]) * 3)["input_ids"]
    assert len(ids) > 90
    with torch.no_grad():
        scores = [
            model(torch.tensor([ids[start : start + 40]])).logits[0].log_softmax(-1) for start in range(0, 80, 20)
        ]
    expected = [
        -float(scores[window][place - 20 * window, ids[place + 1]])
        for place in range(99)
        for window in [0 if place < 40 else place // 20 - 1]
    ]
    nll, count, _ = score_text(run, tokenizer.decode(ids[:100]))
    assert count == 99
    np.testing.assert_allclose(nll, sum(expected), rtol=1e-5)


def test_a_text_of_one_token_has_no_perplexity_and_is_counted(tiny, caplog):
    one, other = tiny[3].perplexity(["The cat sat.", "a"])
    assert math.isnan(other)
    assert not math.isnan(one)
    assert re.search("perplexity is NaN: 1 of 2, the first at index 1; .* given=", caplog.text)
    caplog.clear()
    assert not math.isnan(tiny[3].perplexity("a", given="b"))
    with pytest.raises(ValueError, match="expected a text as given, got int"):
        tiny[3].perplexity("a", given=3)
    assert not caplog.messages


def test_the_verb_leaves_the_columns_of_a_text_of_one_token_empty(tiny, tmp_path, capsys):
    (tmp_path / "texts.txt").write_text("The cat sat.\na\n\n")
    assert main(["perplexity", str(tiny[0]), "--file", str(tmp_path / "texts.txt")]) == 0
    printed = capsys.readouterr()
    assert printed.out.splitlines()[1:] == ["\t\ta", "\t\t"]
    assert "1 of 3 texts has no perplexity; " in printed.err
    assert "texts.txt, line 2: no token after its first" in printed.err
    assert "1 of 3 texts is blank" in printed.err
    assert main(["perplexity", str(tiny[0]), "a"]) != 0
    assert "text 1: no token after its first" in capsys.readouterr().err


def test_a_text_outside_the_vocabulary_has_no_perplexity_and_is_counted(finished_run, caplog):
    run = jaxnlp.load_run(finished_run.folder)
    one, other, last = run.perplexity(["the", "\u9d8f", "t"])
    assert math.isnan(other)
    assert math.isnan(last)
    assert one == run.perplexity("the")
    unknown, short = caplog.messages
    assert "not in the vocabulary, whose perplexity is NaN: 1 of 3, the first at index 1: not in" in unknown
    assert "1 of 3, the first at index 2" in short
    with pytest.raises(UnknownTokenError):
        run.perplexity("the", given="\u9d8f")


def test_line_ends_of_a_text_and_of_the_one_before_it_become_those_of_training(finished_run):
    run = jaxnlp.load_run(finished_run.folder)
    assert run.perplexity("the\r\ntide", given="eats\r") == run.perplexity("the\ntide", given="eats\n")


def test_a_warning_counts_the_words_that_are_read_as_the_unknown_word(word_model, caplog, capsys, tmp_path):
    values = perplexity(word_model, ["w1 zebra w2", "okapi zebra w1", "w1 w2"])
    (message,) = caplog.messages
    assert message == "2 of 5 scored words are not in the vocabulary, and are read as <unk>"
    caplog.clear()
    (tmp_path / "texts.txt").write_text("w1 zebra w2\nokapi zebra w1\nw1 w2\n")
    Perplexity(file=tmp_path / "texts.txt")(word_model)
    assert caplog.messages == [message]
    printed = [line.partition("\t")[0] for line in capsys.readouterr().out.splitlines()]
    assert printed == [f"{value:.4f}" for value in values]
    caplog.clear()
    perplexity(word_model, "w1 w2")
    assert not caplog.messages


def test_the_verb_prints_a_line_for_each_text(tiny, tmp_path, capsys):
    folder, _, _, run = tiny
    (tmp_path / "texts.txt").write_text("The cat sat.\nA dog\n")
    assert main(["perplexity", str(folder), "--file", str(tmp_path / "texts.txt")]) == 0
    lines = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert [text for _, _, text in lines] == ["The cat sat.", "A dog"]
    assert [value for value, _, _ in lines] == [f"{x:.4f}" for x in run.perplexity(["The cat sat.", "A dog"])]
    assert [int(count) for _, count, _ in lines] == [len(run.processor.encode(text)) - 1 for _, _, text in lines]


def test_a_text_outside_the_vocabulary_keeps_its_place_and_stops_no_others(finished_run, tmp_path, capsys):
    (tmp_path / "texts.txt").write_text("the the\nthe \u9d8f\nthe\n")
    assert main(["perplexity", str(finished_run.folder), "--file", str(tmp_path / "texts.txt")]) == 0
    printed = capsys.readouterr()
    lines = printed.out.splitlines()
    assert lines[1] == "\t\tthe \u9d8f"
    assert [line.partition("\t")[0] != "" for line in lines] == [True, False, True]
    assert re.search(r"1 of 3 texts has no perplexity; .*texts.txt, line 2: not in the vocabulary", printed.err)


@pytest.mark.sweep(1)
@pytest.mark.parametrize("beams", [[], ["--num-beams", "2"]], ids=["sample", "beams"])
def test_a_scorer_prints_the_perplexity_of_each_generated_text(beams, tiny, finished_run, capsys):
    folder, _, _, run = tiny
    options = ["--prompt", "the t", "--max-new-tokens", "8", "--num-samples", "2", *beams, "--scorer", str(folder)]
    assert main(["generate", str(finished_run.folder), *options, "--json"]) == 0
    for fields in map(json.loads, capsys.readouterr().out.splitlines()):
        score = score_text(run, fields["text"].removeprefix("the t"), "the t")
        assert fields["scorer_tokens"] == score.tokens > 0
        np.testing.assert_allclose(fields["scorer_perplexity"], score.perplexity, rtol=1e-6)
    assert main(["generate", str(finished_run.folder), *options]) == 0
    out = capsys.readouterr().out
    shown = re.findall(r"^--- perplexity (\d+\.\d\d) of \d+ tokens, scored by (.*) ---$", out, re.MULTILINE)
    assert [name for _, name in shown] == [str(folder)] * 2
