import itertools
import re
from collections import Counter

import numpy as np
import pytest

from data import DataError
from data.span_corruption import CorruptedText, corrupt_spans, corrupted_places
from jaxnlp.text.subwords import END

WORDS = ("the", "red", "house", "stands", "by", "a", "small", "lake", "and", "two", "dogs", "run", "after", "ball")


def test_the_example_of_the_paper():
    text = ["Thank", "you", "for", "inviting", "me", "to", "your", "party", "last", "week", "."]
    source, target = corrupt_spans(text, [(2, 4), (8, 9)], lambda number: f"<{number}>")
    assert source == [*["Thank", "you", "<0>", "me", "to", "your", "party", "<1>", "week", "."], END]
    assert target == [*["<0>", "for", "inviting", "<1>", "last", "<2>"], END]


def test_spans_are_ordered_apart_and_behind_a_kept_token():
    generator = np.random.default_rng(0)
    for length, rate, mean in itertools.product((2, 3, 7, 50), (0.01, 0.15, 0.5, 0.99), (1.0, 3.0, 10.0)):
        spans = corrupted_places(length, generator, rate=rate, mean_span=mean)
        ends = [0, *(end for _, end in spans)]
        assert all(start > end for (start, _), end in zip(spans, ends, strict=False))
        assert all(start < end <= length for start, end in spans)
        assert sum(end - start for start, end in spans) == min(max(round(rate * length), 1), length - 1)


def test_fifteen_percent_is_removed_in_spans_of_three():
    generator = np.random.default_rng(0)
    spans = [corrupted_places(200, generator, rate=0.15, mean_span=3.0) for _ in range(50)]
    lengths = [end - start for found in spans for start, end in found]
    assert sum(lengths) == 50 * 30
    assert np.mean(lengths) == 3.0
    assert len(Counter(lengths)) > 4


def test_each_division_is_as_likely_as_another():
    generator = np.random.default_rng(0)
    found = Counter(tuple(corrupted_places(6, generator, rate=0.5, mean_span=1.5)) for _ in range(4_000))
    assert len(found) == 4  # 3 removed and 3 kept tokens, each in two parts: 2 x 2
    assert all(abs(count - 1_000) < 130 for count in found.values())


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


def test_source_and_target_together_are_the_text(config, corpus):
    subwords = corpus.processor.source
    batch = next(iter(corpus.train))
    sentinels = {subwords.extra_id(number): number for number in range(20)}
    texts = set()
    for row in range(len(batch["source"])):
        source = batch["source"][row][batch["source_mask"][row]].tolist()
        target = batch["targets"][row][batch["loss_mask"][row]].tolist()
        if not target:
            continue
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
        whole = [part for token in source[:-1] for part in spans.get(token, [token])]
        texts.add(subwords.decode(whole))
    lines = config.files[0]
    with open(lines) as file:
        known = {line.strip() for line in file}
    assert texts
    assert all(any(text.strip() in line for line in known) for text in texts)


def test_epochs_differ_and_a_run_repeats_them(config, corpus):
    def sources(data, count):
        return [batch["source"] for batch in itertools.islice(iter(data.train), count)]

    for first, again in zip(sources(corpus, 40), sources(config.load(0), 40), strict=True):
        np.testing.assert_array_equal(first, again)
    other = sources(config.load(1), 1)[0]
    assert other.shape != sources(corpus, 1)[0].shape or (other != sources(corpus, 1)[0]).any()


def test_long_lines_are_divided_and_nothing_is_lost(config, corpus):
    short = CorruptedText(files=config.files, vocabulary_size=400, lengths=(8, 12), batch_tokens=256, sentinels=20)
    divided = short.load(0, corpus.processor)
    (parts, tokens), (lines, same_tokens) = (
        [int(word.replace(",", "")) for word in re.findall(r"[\d,]+", found.description)[:2]]
        for found in (divided, corpus)
    )
    assert parts > lines
    assert same_tokens - (parts - lines) <= tokens <= same_tokens  # a part of one token is left out


def test_what_cannot_be_is_refused(config, tmp_path):
    with pytest.raises(DataError, match=r"data\.files is required: give text files with --data\.files FILE"):
        CorruptedText().load(0)
    with pytest.raises(ValueError, match=r"data.corruption_rate must lie in \(0, 1\), got 1.0"):
        CorruptedText(corruption_rate=1.0)
    with pytest.raises(ValueError, match=r"data\.mean_span must be at least 1 and finite, got 0\.5"):
        CorruptedText(mean_span=0.5)
    with pytest.raises(FileNotFoundError, match=r"none\.txt"):
        CorruptedText(files=(str(tmp_path / "none.txt"),)).load(0)
    few = CorruptedText(files=config.files, vocabulary_size=400, sentinels=5)
    with pytest.raises(DataError, match=r"data\.sentinels 20: the vocabulary has 5 extra symbols"):
        config.load(0, few.load(0).processor)
