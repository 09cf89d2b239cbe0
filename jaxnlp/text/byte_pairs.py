"""Byte-level BPE: tokens are sequences of bytes, so every text can be encoded and restored."""

import functools
import itertools
import json
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from jaxnlp.corpus import errors_as
from jaxnlp.input_files.json_objects import parse_json
from jaxnlp.text import require_fields
from jaxnlp.text.encoder_vocabulary import EncoderVocabulary
from jaxnlp.text.new_tokens import with_added_tokens
from jaxnlp.text.raw_texts import refuse_surrogates
from jaxnlp.text.tokenizer_classes import SpecialTokens
from jaxnlp.text.tokenizer_files import AS_WRITTEN, read_decoder_tokenizer, write_files
from jaxnlp.text.vocabulary import Vocabulary

_PROBE = "Na\u00efve\ttext,  don't \u6587\n\n\U0001f600 end\n e\u0301"
"""Blanks, accents and characters of several bytes, which a byte-level tokenizer returns unchanged."""

PIECE = 1 << 18
"""Characters of a text to encode at once: the library needs at least a hundred bytes for each."""
_PIECES = 16
"""Pieces that are encoded in parallel."""
_LETTER = r"[^\W\d_]"
_CUT = re.compile(rf"(?<={_LETTER})(?=[ \n]{_LETTER})")
"""Between two words, before the blank: every common pre-tokenizer splits there, whatever the rest of the text is."""
_MANY = 16
"""More tokens than a text of one letter has."""
_LINE = "\n"
"""A character that tokenizers seldom put into a token with others, used by those that put a blank before a text."""
_BYTE = re.compile("<0x[0-9A-F]{2}>")
_CUT_PROBE, _CUT_PROBE_CUTS = "one two\nthree", {3, 7}


class BytePairs(Vocabulary):
    """A tokenizer of byte-level BPE, or of BPE with byte fallback, and its vocabulary of V tokens. Equal by value.

    Attributes:
      named: its special tokens by their settings in Transformers, such as `eos_token`.
      start: the id of the token before each text, `bos_token`; None = none.

    Source: Sennrich et al. 2016, with the bytes of Radford et al. 2019, section 2.2; the library `tokenizers`.
    """

    def __init__(self, tokenizer: Tokenizer, named: Mapping[str, str] | None = None, *, starts: bool = False):
        """A tokenizer that restores texts, in the normal form NFC or with a blank before them.

        Args:
          tokenizer: its template is not used.
          named: special tokens; None = none.
          starts: whether each text starts with `bos_token`.

        Raises: ValueError when texts are not restored, when the ids are not 0 to V - 1, or without such a token.
        """
        tokenizer.no_truncation()  # a tokenizer.json may cut and pad texts
        tokenizer.no_padding()
        back = tokenizer.decode(tokenizer.encode(_PROBE, add_special_tokens=False).ids, skip_special_tokens=False)
        if back.removeprefix(" ") not in (_PROBE, unicodedata.normalize("NFC", _PROBE)):
            raise ValueError(f"expected byte-level BPE, which gives {_PROBE!r} back unchanged, got {back!r}")
        ids = set(tokenizer.get_vocab(with_added_tokens=True).values())
        missing = next(number for number in range(len(ids) + 1) if number not in ids)
        if missing < tokenizer.get_vocab_size(with_added_tokens=True):
            raise ValueError(f"expected ids without gaps, got {len(ids):,} ids up to {max(ids):,}, and not {missing:,}")
        self._tokenizer, self.named = tokenizer, dict(named or {})
        self.start = tokenizer.token_to_id(self.named.get("bos_token", "")) if starts else None
        if starts and self.start is None:
            raise ValueError(f"expected a tokenizer with its start token, got {self.named} and no such token")
        # A tokenizer that puts a blank before a text would put one before each piece.
        self._cuts_words = not back.startswith(" ") and _cuts_words(tokenizer)
        word = tokenizer.encode("a", add_special_tokens=False).ids
        # Such a decoder takes a blank from the first word of a text. The others of a text keep theirs.
        self._word = word if tokenizer.decode([*word, *word]) != 2 * tokenizer.decode(word) else None

    @classmethod
    def of(cls, texts: Sequence[str], size: int) -> Self:
        """The bytes, and the most frequent merges of texts: at most `size` tokens, at least 256."""
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
        trainer = trainers.BpeTrainer(vocab_size=size, initial_alphabet=alphabet, show_progress=False)
        tokenizer.train_from_iterator(itertools.chain.from_iterable(map(_pieces, texts)), trainer)
        return cls(tokenizer)

    @classmethod
    def from_file(cls, path: Path) -> Self:
        """The tokenizer of a tokenizer.json, such as that of GPT-2.

        Raises: FileNotFoundError; ValueError naming the file when it has no byte-level BPE.
        """
        if not path.is_file():
            raise FileNotFoundError(f"there is no tokenizer at {path}; give a tokenizer.json")
        with errors_as(ValueError, path):
            return cls.from_json({"tokenizer": parse_json(path.read_text("utf-8")), "named": {}, "starts": False})

    @classmethod
    def of_folder(cls, folder: Path) -> Self:
        """Reads the tokenizer files of a folder: as `jaxnlp.text.tokenizer_files.read_decoder_tokenizer`.

        Raises:
          FileNotFoundError: when the folder has no tokenizer.
          ValueError: naming the file or the folder, when it is not a tokenizer that this library supports.
        """
        tokenizer, named, starts = read_decoder_tokenizer(folder)
        with errors_as(ValueError, folder):
            return cls(tokenizer, named, starts=starts)

    def save(self, folder: Path, *, max_length: int) -> None:
        """Writes tokenizer files, which Transformers and `of_folder` read. Args: `max_length`: of a text, in tokens."""
        # A class that Transformers uses whatever the file says would add tokens of its own for names that are left out.
        names = {**dict.fromkeys(("bos_token", "eos_token", "unk_token", "pad_token")), **self.named}
        settings = {"model_max_length": max_length, "tokenizer_class": AS_WRITTEN[0], **names}
        write_files(self._tokenizer, folder, settings)

    def with_named(self, named: Mapping[str, str]) -> Self:
        """This tokenizer with these special tokens."""
        return type(self)(self._tokenizer, named, starts=self.start is not None)

    def with_tokens(self, tokens: Sequence[str]) -> Self:
        """This vocabulary and these tokens, see `jaxnlp.text.new_tokens`. Raises: ValueError as there."""
        return type(self)(with_added_tokens(self._tokenizer, tokens), self.named, starts=self.start is not None)

    def of_whole_texts(self) -> EncoderVocabulary:
        """The same tokens for whole texts, as a classifier reads them: with the special tokens that Transformers
        adds."""
        end = self.named.get("eos_token", str(self._tokenizer.id_to_token(0)))
        pad, unk, cls = (self.named.get(f"{name}_token", end) for name in ("pad", "unk", "bos"))
        return EncoderVocabulary(self._tokenizer, SpecialTokens(pad, unk, cls, end, end))

    @classmethod
    def of_whole(cls, vocabulary: EncoderVocabulary, named: Mapping[str, str]) -> Self:
        """The tokenizer of `of_whole_texts`, with these special tokens."""
        start, ids = named.get("bos_token", ""), vocabulary.tokenize(["a"], max_length=_MANY).tokens[0]
        starts = len(ids) > len(vocabulary.encode("a")) and ids[0] == vocabulary.tokenizer.token_to_id(start)
        return cls(Tokenizer.from_str(vocabulary.tokenizer.to_str()), named, starts=starts)

    def id_of(self, token: str) -> int | None:
        """The id of a token; None = no such token."""
        return self._tokenizer.token_to_id(token)

    @property
    def size(self) -> int:
        return self._tokenizer.get_vocab_size(with_added_tokens=True)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BytePairs) and self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return self._hash

    @functools.cached_property
    def _hash(self) -> int:
        """Cached: it takes milliseconds, and looks up a program at each call."""
        return hash(self._tokenizer.to_str())

    def encode(self, text: str, *, starts: bool = True) -> np.ndarray:
        """Ids of a text's tokens, [n] int32, after the start token if there is one.

        Args: starts: False = the text continues another one.

        Raises: UnknownTokenError for a text that UTF-8 cannot encode.
        """
        refuse_surrogates(text)
        if not starts and self._word is not None:  # no blank before its first word
            before, whole = self._encode(_LINE), self._encode(_LINE + text)
            if np.array_equal(whole[: len(before)], before):
                return whole[len(before) :]
        start = [self.start] if starts and self.start is not None else []
        return np.concatenate([np.array(start, np.int32), self._encode(text)])

    def _encode(self, text: str) -> np.ndarray:
        pieces, ids = _pieces(text) if self._cuts_words else iter([text]), [np.zeros(0, np.int32)]
        while batch := list(itertools.islice(pieces, _PIECES)):
            encoded = self._tokenizer.encode_batch_fast(batch, add_special_tokens=False)
            ids += [np.array(piece.ids, np.int32) for piece in encoded]
        return np.concatenate(ids)

    def decode(self, ids: Iterable[int], *, starts: bool = True) -> str:
        """The text of a sequence of ids; with a start token, what follows it. Incomplete characters become U+FFFD.

        If texts have a start token, ids without it continue a text, and their first word keeps its blank.

        Args: starts: False = the ids continue a text, and a start token is part of it.
        """
        ids = [int(token_id) for token_id in ids]
        if starts and self.start is not None and ids[:1] == [self.start]:
            ids = ids[1:]
        elif self.start is not None and self._word is not None:
            before = self._decode(self._word)
            return self._decode([*self._word, *ids])[len(before) :]
        return self._decode(ids)

    def is_byte(self, token_id: int) -> bool:
        """Whether the token is one byte, such as `<0xE2>`, whose text depends on its neighbours."""
        return _BYTE.fullmatch(self._tokenizer.id_to_token(token_id) or "") is not None

    def _decode(self, ids: list[int]) -> str:
        return self._tokenizer.decode(ids, skip_special_tokens=False)

    def to_json(self) -> dict[str, Any]:
        tokenizer = json.loads(self._tokenizer.to_str())
        return {"tokenizer": tokenizer, "named": self.named, "starts": self.start is not None}

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Self:
        require_fields(fields, "byte pairs", tokenizer=dict, named=dict, starts=bool)
        try:
            tokenizer = Tokenizer.from_str(json.dumps(fields["tokenizer"]))
        except Exception as error:  # the library has no narrower class
            raise ValueError(f"not a tokenizer: {error}") from error
        return cls(tokenizer, fields["named"], starts=fields["starts"])


def _cuts_words(tokenizer: Tokenizer) -> bool:
    """Whether no token of any text crosses a cut of `_CUT`, by a merge or as an added token."""
    if tokenizer.pre_tokenizer is None:
        return False
    starts = {start for _, (start, _) in tokenizer.pre_tokenizer.pre_tokenize_str(_CUT_PROBE)}
    added = tokenizer.get_added_tokens_decoder().values()
    crossing = any(token.rstrip or re.search(rf"{_LETTER}[ \n]", token.content) for token in added)
    return starts >= _CUT_PROBE_CUTS and not crossing


def _pieces(text: str) -> Iterator[str]:
    """The text in pieces of at least PIECE characters, cut at `_CUT`; the last one may be shorter."""
    start = 0
    while cut := _CUT.search(text, start + PIECE):
        yield text[start : cut.start()]
        start = cut.start()
    yield text[start:]
