"""Tokenizers of Transformers, one class a file, each made from the tokens of its files, and a few settings.

A new class is a new file with a `CLASS`.
"""

import importlib
import pkgutil
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tokenizers import Tokenizer, decoders
from tokenizers.models import BPE


class SpecialTokens(NamedTuple):
    """The special tokens of an encoder's texts: padding, unknown, start, separator, and a masked token."""

    pad: str
    unk: str
    cls: str
    sep: str
    mask: str

    @classmethod
    def of(cls, named: Mapping[str, Any]) -> "SpecialTokens":
        """Those of the settings `pad_token` and so on. Raises: ValueError naming the missing ones."""
        missing = [f"{name}_token" for name in cls._fields if named.get(f"{name}_token") is None]
        if missing:
            raise ValueError(f"an encoder's tokenizer needs special tokens; missing: {', '.join(missing)}")
        return cls(*(str(named[f"{name}_token"]) for name in cls._fields))

    def settings(self) -> dict[str, str]:
        """The settings of these tokens."""
        return {f"{name}_token": token for name, token in self._asdict().items()}


class TokenizerClass(NamedTuple):
    """A class of Transformers.

    Attributes:
      names: of the class.
      model_types: whose default it is, with its default special tokens.
      kind: of its model in the `tokenizers` library.
      files: with the tokens, without a tokenizer.json; () = it needs tokenizer.json.
      named: its default special tokens, by setting.
      segments: whether it numbers the segments of pairs by default.
      read: the content of tokenizer.json that `build` reads, from these files in a folder; None = no files.
      build: the tokenizer without added tokens and template, from the content of tokenizer.json, the special tokens by
        setting, and tokenizer_config.json.
      finish: adds the template, when all tokens have their ids; the tokenizer, then arguments as `build` from the
        second.
      extra: further special tokens that the class adds, from tokenizer_config.json.
      always: model types with this class whatever their files say.
      assumed: whether a folder that names no class has this one. Otherwise Transformers uses its tokenizer.json
        unchanged.
      stand_ins: tokens for special tokens that the class lacks: names of settings.
      unchanged: whether Transformers uses a tokenizer.json with this content unchanged, instead of this class.
    """

    names: tuple[str, ...]
    model_types: tuple[str, ...]
    kind: str
    files: tuple[str, ...]
    named: Mapping[str, str]
    segments: bool
    read: Callable[[Path], dict[str, Any]] | None
    build: Callable[[Mapping[str, Any], Mapping[str, Any], Mapping[str, Any]], Tokenizer]
    finish: Callable[[Tokenizer, Mapping[str, Any], Mapping[str, Any]], None]
    extra: Callable[[Mapping[str, Any]], list[str]] = lambda settings: []
    always: tuple[str, ...] = ()
    assumed: bool = True
    stand_ins: Mapping[str, str] = types.MappingProxyType({})
    unchanged: Callable[[Mapping[str, Any]], bool] = lambda whole: False


def with_id(tokenizer: Tokenizer, token: str) -> tuple[str, int]:
    """A token and its id, as templates have them. Raises: ValueError for an unknown token."""
    token_id = tokenizer.token_to_id(token)
    if token_id is None:
        raise ValueError(f"the tokenizer does not have the token {token}")
    return token, token_id


CLEANED = (
    *((f" {mark}", mark) for mark in (".", "?", "!", ",")),
    (" ' ", "'"),
    *((f" {end}", end) for end in ("n't", "'m", "'s", "'ve", "'re")),
)


def clean_up_texts(tokenizer: Tokenizer) -> None:
    """Removes blanks before marks from decoded texts, as Transformers' `clean_up_tokenization_spaces`, except for
    BPE."""
    if not isinstance(tokenizer.model, BPE):
        steps = [tokenizer.decoder, decoders.Fuse(), *(decoders.Replace(*pair) for pair in CLEANED)]
        tokenizer.decoder = decoders.Sequence(steps)


def classes() -> list[TokenizerClass]:
    """The classes of this folder's files."""
    names = [info.name for info in pkgutil.iter_modules(__path__)]
    return [importlib.import_module(f"{__name__}.{name}").CLASS for name in names]
