"""Training of subword vocabularies."""

import collections
import json
import unicodedata
from collections.abc import Sequence
from typing import Any, get_args

from tokenizers import Regex, Tokenizer, pre_tokenizers
from tokenizers.models import BPE, Unigram
from tokenizers.trainers import BpeTrainer, UnigramTrainer

from jaxnlp.text import most_frequent
from jaxnlp.text.normalization import COMPOSED
from jaxnlp.text.subwords import BLANK, SPECIAL, UNKNOWN, SubwordKind, Subwords, blanks_swapped, pretokenize

_APART = "\uffff"
"""Separates the parts of a text in training; it is not a Unicode character."""
_WORDS = Regex(rf"{BLANK}?\w+|{BLANK}?[^\w{BLANK}]+|{BLANK}")
"""Parts that tokens do not cross: a word or punctuation marks, with the blank before it."""
_SCORE_DIGITS = 6
"""Digits of scores to keep: the last ones depend on the order in which a process adds numbers."""
_SCORE_STEP = 1e-4
"""The difference that `tokenizers` puts between the scores of characters that are not trained tokens."""


def train_subwords(
    texts: Sequence[str], kind: SubwordKind, size: int, *, minimum_count: int = 2, extra: int = 0
) -> Subwords:
    """A vocabulary for texts, which it normalizes to NFC; equal texts give equal vocabularies.

    `bpe` and `unigram` are trained by the `tokenizers` library. They have byte fallback, so every text can be decoded.
    `characters` and `words` have the most frequent ones; all others are unknown.

    Args:
      texts: the training texts.
      kind: the kind of subwords.
      size: maximum V, including the special, byte and extra symbols. V is smaller if the texts have fewer tokens.
      minimum_count: minimum number of occurrences of a character, of a word, and of a merged pair.
      extra: number of extra symbols.

    Raises:
      ValueError: for an unknown kind, and when `size` leaves no room for tokens.
    """
    if kind not in get_args(SubwordKind):
        raise ValueError(f"the kind of subwords must be one of {', '.join(get_args(SubwordKind))}, got {kind!r}")
    byte_fallback = kind in ("bpe", "unigram")
    room = size - len(SPECIAL) - extra - (256 if byte_fallback else 0)
    if room < 1:
        raise ValueError(
            f"a vocabulary of {size} has no room for tokens, since {size - room} are special, byte or extra symbols; "
            f"choose at least {size - room + 1}"
        )
    composed = (unicodedata.normalize("NFC", text) for text in texts if text)
    spaced = [blanks_swapped(text if kind == "characters" else f" {text}") for text in composed]
    if kind == "words":
        words = collections.Counter(word for text in spaced for word in pretokenize(text))
        return Subwords(kind, _frequent(words, minimum_count, room), extra=extra, normalization=COMPOSED)
    characters = _frequent(collections.Counter("".join(spaced)), minimum_count, room)
    if kind == "characters":
        return Subwords(kind, characters, extra=extra, normalization=COMPOSED)
    rare = {ord(character): _APART for character in set("".join(spaced)) - set(characters)}
    spaced = [text.translate(rare) for text in spaced] if rare else spaced
    if kind == "bpe":
        scores = _train_bpe(spaced, room, minimum_count, characters)
    else:
        scores = _train_unigram(spaced, room, characters)
    return Subwords(kind, tuple(scores), tuple(scores.values()), byte_fallback, extra, COMPOSED)


def _frequent(counts: collections.Counter[str], minimum_count: int, most: int) -> tuple[str, ...]:
    return tuple([token for token in most_frequent(counts, minimum_count) if token != _APART][:most])


def _train_bpe(texts: Sequence[str], size: int, minimum_count: int, characters: Sequence[str]) -> dict[str, float]:
    """The score of each token: minus its index in the order of merges."""
    trainer = BpeTrainer(
        vocab_size=size, min_frequency=minimum_count, initial_alphabet=list(characters), show_progress=False
    )
    ids = _trained(BPE(), trainer, texts).get_vocab()
    return {token: -float(ids[token]) for token in sorted(ids, key=ids.__getitem__)}


def _train_unigram(texts: Sequence[str], size: int, characters: Sequence[str]) -> dict[str, float]:
    """The log probability of each token, the same in every process."""
    unknown = SPECIAL[UNKNOWN]  # the trainer adds it
    trainer = UnigramTrainer(
        vocab_size=size + 1, initial_alphabet=list(characters), unk_token=unknown, show_progress=False
    )
    trained = json.loads(_trained(Unigram(), trainer, texts).to_str())["model"]["vocab"]
    scores = {token: round(score, _SCORE_DIGITS) for token, score in trained if token != unknown}
    # The library gives characters that are not among the trained tokens scores just above the lowest one, in a random
    # order. Here they all have the lowest score.
    lowest = min(scores.values(), default=0.0)
    highest = lowest + _SCORE_STEP * (len(characters) + 1)
    scores = {token: lowest if score < highest else score for token, score in scores.items()}
    ordered = sorted(scores, key=lambda token: (-scores[token], token))
    # The library may return a few tokens more than requested; characters are kept.
    kept = set(sorted(ordered, key=lambda token: len(token) > 1)[:size])
    return {token: scores[token] for token in ordered if token in kept}


def _trained(model: Any, trainer: Any, texts: Sequence[str]) -> Tokenizer:
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(_APART, "removed"), pre_tokenizers.Split(_WORDS, "isolated")]
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer
