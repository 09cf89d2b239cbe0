"""Vocabularies of subwords for given texts."""

import collections
import json
from collections.abc import Sequence
from typing import Any, get_args

from tokenizers import Regex, Tokenizer, pre_tokenizers
from tokenizers.models import BPE, Unigram
from tokenizers.trainers import BpeTrainer, UnigramTrainer

from jaxnlp.text.subwords import BLANK, SPECIAL, UNKNOWN, SubwordKind, Subwords, blanks_swapped, split_words

_APART = "\uffff"
"""Stands between the parts of a text in training; not a character of Unicode."""
_WORDS = Regex(rf"{BLANK}?\w+|{BLANK}?[^\w{BLANK}]+|{BLANK}")
"""What no piece crosses: a word, or punctuation marks, with the blank before it."""
_SCORE_DIGITS = 6
"""Of scores: their last digits depend on the order in which a process adds numbers."""
_SCORE_STEP = 1e-4
"""Between the scores that the library gives to characters without a piece."""


def train_subwords(
    texts: Sequence[str], kind: SubwordKind, size: int, *, minimum_count: int = 2, extra: int = 0
) -> Subwords:
    """A vocabulary for texts; the same texts give the same one.

    `bpe` and `unigram` are trained by the `tokenizers` library, and have byte fallback, so that every text can be
    decoded; rare characters are read as their bytes. `characters` and `words` have the most frequent ones, the others
    are unknown.

    Args:
      texts: the training texts.
      kind: of the pieces.
      size: maximum V, with the special symbols, the bytes and the extra symbols. V is smaller when there are not as
        many pieces.
      minimum_count: minimum number of occurrences of a character, of a word, and of neighbours to be merged.
      extra: number of extra symbols.

    Raises:
      ValueError: for an unknown kind, and when `size` has no room for any piece.
    """
    if kind not in get_args(SubwordKind):
        raise ValueError(f"the kind of subwords must be one of {', '.join(get_args(SubwordKind))}, got {kind!r}")
    byte_fallback = kind in ("bpe", "unigram")
    room = size - len(SPECIAL) - extra - (256 if byte_fallback else 0)
    if room < 1:
        raise ValueError(
            f"a vocabulary of {size} has no room for pieces: {size - room} symbols are special, bytes or extra"
        )
    spaced = [blanks_swapped(text if kind == "characters" else f" {text}") for text in texts if text]
    if kind == "words":
        words = collections.Counter(word for text in spaced for word in split_words(text))
        return Subwords(kind, _frequent(words, minimum_count, room), extra=extra)
    characters = _frequent(collections.Counter("".join(spaced)), minimum_count, room)
    if kind == "characters":
        return Subwords(kind, characters, extra=extra)
    rare = {ord(character): _APART for character in set("".join(spaced)) - set(characters)}
    spaced = [text.translate(rare) for text in spaced] if rare else spaced
    if kind == "bpe":
        pieces = _train_bpe(spaced, room, minimum_count, characters)
    else:
        pieces = _train_unigram(spaced, room, characters)
    return Subwords(kind, tuple(pieces), tuple(pieces.values()), byte_fallback, extra)


def _frequent(counts: collections.Counter[str], minimum_count: int, most: int) -> tuple[str, ...]:
    """The most frequent ones, in the order of their counts."""
    found = [piece for piece, count in counts.items() if count >= minimum_count and piece != _APART]
    return tuple(sorted(found, key=lambda piece: (-counts[piece], piece))[:most])


def _train_bpe(texts: Sequence[str], size: int, minimum_count: int, characters: Sequence[str]) -> dict[str, float]:
    """Pieces, and minus their place in the order of merges."""
    trainer = BpeTrainer(
        vocab_size=size, min_frequency=minimum_count, initial_alphabet=list(characters), show_progress=False
    )
    ids = _trained(BPE(), trainer, texts).get_vocab()
    return {piece: -float(ids[piece]) for piece in sorted(ids, key=ids.__getitem__)}


def _train_unigram(texts: Sequence[str], size: int, characters: Sequence[str]) -> dict[str, float]:
    """Pieces and their log probabilities, without what differs from process to process."""
    unknown = SPECIAL[UNKNOWN]  # the trainer adds it
    trainer = UnigramTrainer(
        vocab_size=size + 1, initial_alphabet=list(characters), unk_token=unknown, show_progress=False
    )
    trained = json.loads(_trained(Unigram(), trainer, texts).to_str())["model"]["vocab"]
    scores = {piece: round(score, _SCORE_DIGITS) for piece, score in trained if piece != unknown}
    # Characters that training has no piece for come just above the lowest score, in a random order: give them the same.
    lowest = min(scores.values(), default=0.0)
    highest = lowest + _SCORE_STEP * (len(characters) + 1)
    scores = {piece: lowest if score < highest else score for piece, score in scores.items()}
    ordered = sorted(scores, key=lambda piece: (-scores[piece], piece))
    # The library may return a few pieces more than asked for; characters stay.
    kept = set(sorted(ordered, key=lambda piece: len(piece) > 1)[:size])
    return {piece: scores[piece] for piece in ordered if piece in kept}


def _trained(model: Any, trainer: Any, texts: Sequence[str]) -> Tokenizer:
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(_APART, "removed"), pre_tokenizers.Split(_WORDS, "isolated")]
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer
