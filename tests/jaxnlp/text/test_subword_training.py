import json
import subprocess
import sys

import pytest

from jaxnlp.text.subword_training import train_subwords
from jaxnlp.text.subwords import UNKNOWN, Subwords

KINDS = ["bpe", "unigram", "characters", "words"]
TEXTS = [
    "The old man and the sea.",
    "The oldest woman saw the sea, and the man!",
    "der alte Mann und das Meer",
    "ältere Männer am Meer; 你好。世界。你好。",
] * 5


@pytest.fixture(scope="module")
def trained():
    return {kind: train_subwords(TEXTS, kind, 400, extra=3) for kind in KINDS}


def test_rare_characters_are_bytes_or_unknown():
    texts = ["the sea"] * 4 + ["ж"]
    bpe, characters = (train_subwords(texts, kind, 300) for kind in ("bpe", "characters"))
    assert bpe.tokens(bpe.encode("ж")) == ["▁", "<0xD0>", "<0xB6>"]
    assert characters.encode("ж") == [UNKNOWN]
    assert "ж" in train_subwords(texts, "characters", 300, minimum_count=1).vocabulary


def test_the_size_is_a_maximum(trained):
    for kind in KINDS:
        assert trained[kind].size <= 400
        room = 4 + 3 + (256 if kind in ("bpe", "unigram") else 0)
        small = train_subwords(TEXTS, kind, room + 10, extra=3)
        assert room < small.size <= room + 10
        assert small.decode(small.encode(TEXTS[0])) == TEXTS[0] or UNKNOWN in small.encode(TEXTS[0])
        with pytest.raises(
            ValueError,
            match=f"a vocabulary of {room} has no room for tokens, since {room} are special, .* at least {room + 1}",
        ):
            train_subwords(TEXTS, kind, room, extra=3)


@pytest.mark.sweep(1)
@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_other_processes_train_the_same_vocabulary(trained, kind, root):
    script = (
        "import json, sys; from jaxnlp.text.subword_training import train_subwords; "
        "print(json.dumps(train_subwords(json.loads(sys.argv[1]), sys.argv[2], 400, extra=3).to_json()))"
    )
    command = [sys.executable, "-c", script, json.dumps(TEXTS), kind]
    for _ in range(2):
        printed = subprocess.run(command, cwd=root, capture_output=True, check=True).stdout
        assert Subwords.from_json(json.loads(printed)) == trained[kind]


def test_no_texts_give_a_vocabulary_of_symbols():
    for kind in KINDS:
        assert train_subwords([""], kind, 400, extra=2).vocabulary == ()


def test_an_unknown_kind_is_refused():
    with pytest.raises(ValueError, match="must be one of bpe, unigram, characters, words, got 'bytes'"):
        train_subwords(TEXTS, "bytes", 400)
