import dataclasses
import hashlib
import itertools
import json
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from data import DataError
from data.span_corruption import CorruptedText, corrupt_spans, random_spans, span_counts
from jaxnlp.text.pretrained_subwords import PretrainedSubwords
from jaxnlp.text.subwords import END
from jaxnlp.text.translation import TranslationProcessor
from tests.encoder_decoder_folders import save_tokenizer

WORDS = ("the", "red", "house", "stands", "by", "a", "small", "lake", "and", "two", "dogs", "run", "after", "ball")


def spans_of(lengths, rate, mean_span):
    """For each text, the start and the end of each span that is removed."""
    removed = random_spans(np.array(lengths), np.random.default_rng(0), rate=rate, mean_span=mean_span)
    found = []
    for of_text in np.split(removed, np.cumsum(lengths)[:-1]):
        changes = np.flatnonzero(np.diff(of_text, prepend=False, append=False)).tolist()
        found.append(tuple(zip(changes[::2], changes[1::2], strict=True)))
    return found


def test_the_example_of_the_paper():
    text = ["Thank", "you", "for", "inviting", "me", "to", "your", "party", "last", "week", "."]
    removed = np.isin(text, ["for", "inviting", "last"])
    other = ["a", "b", "c"]
    pairs = corrupt_spans(
        np.array(text + other),
        np.append(removed, [False, True, True]),
        np.array([len(text), len(other)]),
        np.array(["<0>", "<1>", "<2>"]),
        end="</s>",
    )
    expected = [
        ("Thank you <0> me to your party <1> week . </s>", "<0> for inviting <1> last <2> </s>"),
        ("a <0> </s>", "<0> b c <1> </s>"),
    ]
    assert [(" ".join(source), " ".join(target)) for source, target in pairs] == expected


def test_spans_are_ordered_apart_and_after_a_kept_token():
    lengths = [2, 3, 7, 50, 2]
    for rate, mean in itertools.product((0.01, 0.15, 0.5, 0.99), (1.0, 3.0, 10.0)):
        removed, count = span_counts(np.array(lengths), rate=rate, mean_span=mean)
        found = spans_of(lengths, rate, mean)
        assert [*map(len, found)] == count.tolist()
        for length, gone, spans in zip(lengths, removed, found, strict=True):
            assert all(0 < start < end <= length for start, end in spans)
            assert sum(end - start for start, end in spans) == gone == min(max(round(rate * length), 1), length - 1)


def test_fifteen_percent_is_removed_in_spans_of_three():
    lengths = [end - start for spans in spans_of(50 * [200], 0.15, 3.0) for start, end in spans]
    assert sum(lengths) == 50 * 30
    assert np.mean(lengths) == 3.0
    assert len(Counter(lengths)) > 4


def test_longer_texts_have_no_fewer_spans():
    for rate, mean in itertools.product((0.01, 0.15, 0.5, 0.9, 0.99), (1.0, 1.7, 3.0, 10.0)):
        removed, spans = span_counts(np.arange(2, 300), rate=rate, mean_span=mean)
        assert (np.diff(removed) >= 0).all()
        assert (np.diff(spans) >= 0).all()


def test_each_division_is_as_likely_as_another():
    found = Counter(spans_of(4_000 * [6], 0.5, 1.5))
    assert len(found) == 6  # 3 removed tokens in two spans, 3 kept ones before, between and maybe after them: 2 x 3
    assert all(abs(count - 667) < 110 for count in found.values())


def test_a_single_span_may_be_anywhere_but_at_the_start():
    found = Counter(spans_of(2_000 * [12], 0.15, 3.0))
    assert sorted(found) == [((start, start + 2),) for start in range(1, 11)]
    assert all(abs(count - 200) < 60 for count in found.values())


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "lines.txt"
    generator = np.random.default_rng(0)
    lines = [" ".join(generator.choice(WORDS, size=generator.integers(2, 30))) for _ in range(200)]
    path.write_text("\n".join([*lines, "", "the"]) + "\n")
    return CorruptedText(files=(str(path),), vocabulary_size=400, lengths=(8, 16, 32), batch_tokens=256, sentinels=20)


@pytest.fixture(scope="module")
def corpus(config):
    return config.load(0)


def first_epochs(corpus, count):
    """Source and target of each text in each of the first epochs, without padding."""
    batches, epochs = iter(corpus.train), [[] for _ in range(count)]
    while True:
        batch = next(batches)
        if (epoch := batches.get_state()["epoch"]) == count:
            return epochs
        for row in np.flatnonzero(batch["loss_mask"].any(axis=1)):
            source = batch["source"][row][batch["source_mask"][row]].tolist()
            epochs[epoch].append((source, batch["targets"][row][batch["loss_mask"][row]].tolist()))


def restored(source, target, subwords):
    """The ids of the text that was corrupted; checks the order of the sentinels."""
    sentinels = {subwords.extra_id(number): number for number in range(20)}
    assert source[-1] == target[-1] == END
    kinds = [sentinels[token] for token in target if token in sentinels]
    assert kinds == list(range(len(kinds)))
    assert [sentinels[token] for token in source if token in sentinels] == kinds[:-1]
    assert target[-2] == subwords.extra_id(len(kinds) - 1)
    spans: dict[int, list[int]] = {}
    for token in target[:-1]:
        if token in sentinels:
            spans[token] = current = []
        else:
            current.append(token)
    return [part for token in source[:-1] for part in spans.get(token, [token])]


def test_source_and_target_together_are_the_text(config, corpus):
    subwords = corpus.processor.source
    (pairs,) = first_epochs(corpus, 1)
    with open(config.files[0]) as file:
        known = {line.strip() for line in file}
    texts = [subwords.decode(restored(*pair, subwords)).strip() for pair in pairs]
    assert len(texts) > 190
    assert all(any(text in line for line in known) for text in texts)


def test_epochs_have_the_same_texts_with_other_spans_and_a_run_repeats_them(config, corpus):
    first, second = first_epochs(corpus, 2)
    whole = [sorted(restored(*pair, corpus.processor.source) for pair in epoch) for epoch in (first, second)]
    assert whole[0] == whole[1]
    same = Counter(map(str, first)) & Counter(map(str, second))
    assert same.total() < 0.5 * len(first)
    assert first_epochs(config.load(0), 2) == [first, second]
    assert first_epochs(config.load(1), 1) != [first]


def test_texts_of_a_single_token_are_counted(corpus):
    assert "for validation (1 of a single token removed); " in corpus.description


@pytest.mark.parametrize("name", ["training", "validation"])
def test_lines_of_a_single_token_are_not_enough(tmp_path, name):
    digest = lambda line: hashlib.sha256(line.encode()).digest()  # noqa: E731
    word = min(WORDS, key=digest)  # is held out, since no line has a smaller digest
    lines = [line for line in (f"{a} {b}" for a in WORDS for b in WORDS) if digest(line) > digest(word)]
    (tmp_path / "a.txt").write_text("\n".join(9 * [word] + (lines[:40] if name == "validation" else 9 * ["lake"])))
    short = CorruptedText(files=(str(tmp_path / "a.txt"),), vocabulary_size=400, sentinels=20)
    with pytest.raises(DataError, match=rf"the {name} lines of .*a.txt have no text of two tokens or more"):
        short.load(0)


def test_the_sentinels_and_the_symbols_of_a_pretrained_vocabulary_are_used(config, tmp_path):
    save_tokenizer(tmp_path, extra_ids=20)
    (tmp_path / "config.json").write_text('{"model_type": "t5"}')
    subwords = PretrainedSubwords.of_folder(tmp_path, 0)
    batch = next(iter(config.load(0, TranslationProcessor(subwords, subwords)).train))
    real = batch["loss_mask"].any(axis=1)
    first = subwords.extra_id(0)
    assert (batch["inputs"][real, 0] == subwords.start).all()
    assert (batch["targets"][real, 0] == first).all()
    assert ((batch["source"][real] == first).sum(axis=1) == 1).all()
    lengths = batch["source_mask"][real].sum(axis=1)
    assert (batch["source"][real][np.arange(real.sum()), lengths - 1] == subwords.end).all()


def test_a_given_vocabulary_is_named_as_such(config, corpus):
    assert "from pretrained weights, an earlier run or an earlier start" in config.load(0, corpus.processor).description
    assert "saved" not in corpus.description


def test_long_lines_are_divided_and_nothing_is_lost(config, corpus):
    short = CorruptedText(files=config.files, vocabulary_size=400, lengths=(8, 12), batch_tokens=256, sentinels=20)
    divided = short.load(0, corpus.processor)
    (parts, tokens), (lines, same_tokens) = (
        [int(word.replace(",", "")) for word in re.findall(r"[\d,]+", found.description)[:2]]
        for found in (divided, corpus)
    )
    assert parts > lines
    assert same_tokens - (parts - lines) <= tokens <= same_tokens  # texts of one token are left out


def test_what_cannot_be_is_refused(config, tmp_path):
    with pytest.raises(DataError, match=r"data\.files is required: give text files with --data\.files FILE"):
        CorruptedText().load(0)
    with pytest.raises(ValueError, match=r"data.corruption_rate must be in \(0, 1\), got 1.0"):
        CorruptedText(corruption_rate=1.0)
    with pytest.raises(ValueError, match=r"data\.mean_span must be at least 1 and finite, got 0\.5"):
        CorruptedText(mean_span=0.5)
    (tmp_path / "one.txt").write_text("a line\n" * 9)
    with pytest.raises(DataError, match=r"one\.txt: expected at least two distinct lines of text, .*, got 1"):
        CorruptedText(files=(str(tmp_path / "one.txt"),)).load(0)
    with pytest.raises(FileNotFoundError, match=r"none\.txt"):
        CorruptedText(files=(str(tmp_path / "none.txt"),)).load(0)
    with pytest.raises(ValueError, match=r"sentinels must be at least 7 for texts of data.lengths up to 128, got 6"):
        CorruptedText(sentinels=6)
    CorruptedText(sentinels=7)
    few = CorruptedText(files=config.files, vocabulary_size=400, sentinels=7)
    with pytest.raises(DataError, match=r"data\.sentinels 20 needs as many extra symbols, .* has 7"):
        config.load(0, few.load(0).processor)


def test_a_file_that_the_folder_of_a_data_set_does_not_have_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("JAXNLP_DATA", str(tmp_path))
    (tmp_path / "x").mkdir()
    with pytest.raises(DataError, match=r"has no a\.txt; for your own files, set --data\.data-set None"):
        CorruptedText(data_set="x", files=("a.txt",)).load(0)


def test_a_table_that_is_read_as_lines_is_reported(config, tmp_path, caplog):
    path = tmp_path / "lines.jsonl"
    lines = Path(config.files[0]).read_text().splitlines()
    path.write_text("".join(json.dumps({"text": line}) + "\n" for line in lines))
    dataclasses.replace(config, files=(*config.files, str(path))).load(0)
    assert [message.split(":")[0] for message in caplog.messages] == [str(path)]
