"""The tokens of a pretrained translator: pieces of two SentencePiece models, looked up in one table of ids."""

import base64
import binascii
import functools
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

from jaxnlp.corpus import errors_as
from jaxnlp.text import require_fields
from jaxnlp.text.foreign_settings import settings_in
from jaxnlp.text.generation_constraints import UNCONSTRAINED, GenerationConstraints
from jaxnlp.text.pretrained_subwords import PretrainedSubwords, described
from jaxnlp.text.raw_texts import refuse_surrogates
from jaxnlp.text.sentencepiece import subwords_of
from jaxnlp.text.subwords import BLANK, Subwords
from jaxnlp.text.tokenizer_classes import CLEANED
from jaxnlp.text.tokenizer_files import (
    ADDED,
    SETTINGS,
    SPECIAL_MAP,
    TOKENIZER_SETTINGS,
)

MODELS, TABLE, TARGET_TABLE = ("source.spm", "target.spm"), "vocab.json", "target_vocab.json"
NEEDED = (*MODELS, TABLE)
FILES = (*NEEDED, TARGET_TABLE)
CLASS = "MarianTokenizer"
"""The class of Transformers."""
_DEFAULTS = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
_CODE = re.compile(">>.*?<<", re.DOTALL)

_RULES = TOKENIZER_SETTINGS._replace(
    applied=(*TOKENIZER_SETTINGS.applied, *_DEFAULTS),
    supported={
        **TOKENIZER_SETTINGS.supported,
        "tokenizer_class": (CLASS, None),
        "backend": ("custom",),
        "separate_vocabs": (False, True),
        "sp_model_kwargs": ({}, None),
        **dict.fromkeys(("extra_special_tokens", "additional_special_tokens"), (None, [], {})),
        "clean_up_tokenization_spaces": (None, False, True),
    },
    ignored={
        **TOKENIZER_SETTINGS.ignored,
        "names of languages, and of files": (
            *("source_lang", "target_lang", "source_spm", "target_spm", "vocab", "target_vocab_file"),
        ),
    },
)
"""tokenizer_config.json."""


class MarianTokenizer(PretrainedSubwords):
    """Two SentencePiece models, one for sources and one for targets, and one table of V ids for their pieces; or the
    tokenizer of targets of a model with two tables, see `of_sources`.

    A piece without an id is unknown. In a text, names such as `</s>` are tokens, and so is a language code of the table
    at its start, such as `>>fra<<`.

    Source: `MarianTokenizer` of Transformers.
    """

    kind: ClassVar[str] = "pieces"

    def __init__(
        self,
        table: Mapping[str, int],
        models: tuple[bytes, bytes],
        named: dict[str, str],
        start: int,
        constraints: GenerationConstraints = UNCONSTRAINED,
        *,
        clean_up: bool = False,
        source_table: Mapping[str, int] | None = None,
    ):
        """Args: models: contents of the files, for sources and for targets; clean_up: whether to remove blanks before
        marks from decoded texts; source_table: the table of sources, if they have one of their own.

        Raises: ValueError for special tokens that are not in the table, and unsupported models.
        """
        self._table, self._models, self._clean_up = dict(table), models, clean_up
        self._source_table = None if source_table is None else dict(source_table)
        self._source, self._target = (subwords_of(raw, name) for raw, name in zip(models, MODELS, strict=True))
        if self._source.byte_fallback or self._target.byte_fallback:
            raise ValueError(f"{' and '.join(MODELS)}: tokens for bytes are not supported")
        self._describe(named, start, constraints)

    @classmethod
    def of_folder(cls, folder: Path, start: int, constraints: GenerationConstraints = UNCONSTRAINED) -> Self:
        missing = [name for name in NEEDED if not (folder / name).is_file()]
        if missing:
            raise FileNotFoundError(f"{folder} has no {', '.join(missing)}, which {CLASS} needs")
        table, config = (settings_in(folder / name) for name in (TABLE, "config.json"))
        given = {"tokenizer_class": config.get("tokenizer_class")}
        given |= settings_in(folder / SPECIAL_MAP) | settings_in(folder / SETTINGS)
        _RULES.check(folder / SETTINGS, given)
        second = settings_in(folder / TARGET_TABLE) if given.get("separate_vocabs") else None
        if second == {}:
            raise FileNotFoundError(f"{folder} has no {TARGET_TABLE}, which {CLASS} needs with separate_vocabs")
        for name, one in ((TABLE, table), (TARGET_TABLE, second or {})):
            if not all(type(token_id) is int and token_id >= 0 for token_id in one.values()):
                raise ValueError(f"{folder / name}: expected the id of each piece")
        tokens = {name: given.get(name, token) for name, token in _DEFAULTS.items()}
        listed = given.get("added_tokens_decoder") or {}
        added = [
            *((None, token) for token in tokens.values()),
            *((int(one), token) for one, token in listed.items()),
        ]
        added += [(one, token) for token, one in settings_in(folder / ADDED).items()]
        named = {name: _content(token) for name, token in tokens.items()}
        for token_id, token in added:
            content = _content(token)
            flags = [] if isinstance(token, str) else [x for x in ("lstrip", "rstrip", "single_word") if token.get(x)]
            if content not in named.values() or token_id not in (None, table.get(content)) or flags:
                raise ValueError(
                    f"{folder}: the added token {token!r} is not supported, expected only {', '.join(named.values())} "
                    f"with their ids in {TABLE}, and without lstrip, rstrip and single_word"
                )
        source, target = ((folder / name).read_bytes() for name in MODELS)
        clean_up = bool(given.get("clean_up_tokenization_spaces"))
        with errors_as(ValueError, folder):
            both: dict[str, Any] = {"source_table": None if second is None else table, "clean_up": clean_up}
            return cls(table if second is None else second, (source, target), named, start, constraints, **both)

    def of_sources(self) -> Self:
        if self._source_table is None:
            return self
        return type(self)(self._source_table, self._models, self.named, self.start, clean_up=self._clean_up)

    def with_tokens(self, tokens: Sequence[str]) -> Self:
        raise ValueError(f"a {CLASS} takes no new tokens: its SentencePiece models make the pieces of texts")

    def save(self, folder: Path, *, max_length: int) -> None:
        for name, raw in zip(MODELS, self._models, strict=True):
            (folder / name).write_bytes(raw)
        separate = self._source_table is not None
        tables = {TABLE: self._source_table, TARGET_TABLE: self._table} if separate else {TABLE: self._table}
        for name, table in tables.items():
            (folder / name).write_text(json.dumps(table, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
        settings = {"tokenizer_class": CLASS, "model_max_length": max_length, "separate_vocabs": separate, **self.named}
        settings["clean_up_tokenization_spaces"] = self._clean_up
        (folder / SETTINGS).write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")

    def id_of(self, token: str) -> int | None:
        return self._table.get(token)

    @property
    def first(self) -> list[int]:
        return []

    @functools.cached_property
    def size(self) -> int:
        return 1 + max(self._table.values())

    def encode(self, text: str) -> list[int]:
        return self._encode(text, self._source)

    def encode_target(self, text: str) -> list[int]:
        return self._encode(text, self._target)

    def _encode(self, text: str, model: Subwords) -> list[int]:
        refuse_surrogates(text)
        ids: list[int] = []
        for index, part in enumerate(self._special_tokens.split(text)):
            if index % 2:  # Transformers gives special tokens their ids in the table of sources
                ids.append((self._source_table or self._table)[part])
            elif part:
                code = _CODE.match(part)
                pieces = [code.group()] if code else []
                pieces += model.pieces(part[code.end() if code else 0 :])
                ids += [self._table.get(piece, self.unknown) for piece in pieces]
        return ids

    @functools.cached_property
    def _special_tokens(self) -> re.Pattern[str]:
        """The special tokens, the longest first."""
        names = sorted(self.named.values(), key=len, reverse=True)
        return re.compile(f"({'|'.join(map(re.escape, names))})")

    def decode(self, ids: Iterable[int]) -> str:
        text = ""
        for token in self.tokens(self._written(ids)):
            text += token.removeprefix(BLANK) if not text and token in self._decoding else token
        text = text.replace(BLANK, " ").strip()
        for blank in CLEANED if self._clean_up else ():
            text = text.replace(*blank)
        return text

    @functools.cached_property
    def _decoding(self) -> frozenset[str]:
        """The pieces without a blank at the start of a decoded text, of the model with which Transformers decodes."""
        return frozenset((self._source if self._source_table is None else self._target).vocabulary)

    def tokens(self, ids: Iterable[int]) -> list[str]:
        return [self._pieces.get(int(one), f"<id {int(one)}>") for one in ids]

    @functools.cached_property
    def _pieces(self) -> dict[int, str]:
        return {token_id: piece for piece, token_id in self._table.items()}

    def to_json(self) -> dict[str, Any]:
        """The fields as JSON; `models` are the files in base64."""
        return {
            "pieces": self._table,
            "models": [base64.b64encode(raw).decode() for raw in self._models],
            "named": self.named,
            "start": self.start,
            "clean_up": self._clean_up,
            "source_pieces": self._source_table,
            **self.constraints.to_json(),
        }

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Self:
        require_fields(fields, "subwords", pieces=dict, models=list, clean_up=bool)
        try:
            source, target = (base64.b64decode(raw, validate=True) for raw in fields["models"])
        except (binascii.Error, ValueError, TypeError) as error:
            raise ValueError(f"subwords: models: expected two files in base64: {error}") from error
        own: dict[str, Any] = {"clean_up": fields["clean_up"], "source_table": fields.get("source_pieces")}
        if not isinstance(own["source_table"], dict | None):
            raise ValueError(f"subwords: source_pieces must be an object or null, got {own['source_table']!r:.80}")
        return cls(fields["pieces"], (source, target), **own, **described(fields))


def _content(token: Any) -> str:
    return token["content"] if isinstance(token, dict) else str(token)
