"""The tokens of a pretrained text-to-text model: any tokenizer of the `tokenizers` library."""

import functools
import itertools
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

from tokenizers import Tokenizer

from jaxnlp.text import require_fields
from jaxnlp.text.generation_constraints import UNCONSTRAINED, GenerationConstraints
from jaxnlp.text.new_tokens import with_added_tokens
from jaxnlp.text.raw_texts import refuse_surrogates
from jaxnlp.text.tokenizer_files import (
    AS_WRITTEN,
    TEXT_TO_TEXT_TOKENS,
    read_text_to_text_tokenizer,
    tokenizer_of,
    write_files,
)


class PretrainedSubwords:
    """A tokenizer and its vocabulary of V tokens, with the interface of `jaxnlp.text.subwords.Subwords`.

    Equal by value. Unlike in `Subwords`, the ids of special tokens are the pretrained model's, and a name such as
    `</s>` in a text becomes the token, as in Transformers.

    Attributes:
      named: its special tokens by their settings in Transformers, `pad_token`, `eos_token` and `unk_token` among them.
      start: the id of the start symbol of a target.
      constraints: on generated targets, after the start symbol.
    """

    unit = "tokens"
    """The plural noun for tokens in metrics."""
    kind: ClassVar[str] = "pretrained"

    def __init__(
        self,
        tokenizer: Tokenizer,
        named: dict[str, str],
        start: int,
        constraints: GenerationConstraints = UNCONSTRAINED,
    ):
        """Raises: ValueError for special tokens that the tokenizer does not have."""
        tokenizer.no_truncation()  # a tokenizer.json may cut and pad texts
        tokenizer.no_padding()
        self._tokenizer = tokenizer
        self._describe(named, start, constraints)

    def _describe(self, named: dict[str, str], start: int, constraints: GenerationConstraints) -> None:
        """Sets the attributes. Raises: ValueError for unknown special tokens."""
        missing = [token for token in named.values() if self.id_of(token) is None]
        if missing or not set(named) >= set(TEXT_TO_TEXT_TOKENS):
            raise ValueError(f"expected a tokenizer with the tokens {', '.join(TEXT_TO_TEXT_TOKENS)}, got {named}")
        if start < 0:
            raise ValueError(f"expected the id of the start symbol, got {start}")
        self.named, self.start, self.constraints = named, start, constraints

    @classmethod
    def of_folder(cls, folder: Path, start: int, constraints: GenerationConstraints = UNCONSTRAINED) -> Self:
        """Reads the tokenizer files of a folder: as `jaxnlp.text.tokenizer_files.read_text_to_text_tokenizer`.

        Args: start, constraints: attributes that the files do not have.

        Raises:
          FileNotFoundError: when the folder has no tokenizer.
          ValueError: naming the file or the folder, when it is not a tokenizer that this library supports.
        """
        return cls(*read_text_to_text_tokenizer(folder), start, constraints)

    def without(self, name: str) -> Self:
        """The tokenizer without a special token of BPE, such as `mask_token`, which is then an ordinary word."""
        fields, token = self.to_json(), self.named[name]
        whole = fields["tokenizer"]
        whole["model"]["vocab"].pop(token, None)
        whole["added_tokens"] = [one for one in whole["added_tokens"] if one["content"] != token]
        named = {other: text for other, text in self.named.items() if other != name}
        return type(self).from_json({**fields, "tokenizer": whole, "named": named})

    def of_sources(self) -> Self:
        """The tokenizer of the model's inputs: this one, unless they have a vocabulary of their own."""
        return self

    def with_tokens(self, tokens: Sequence[str]) -> Self:
        """This vocabulary and these tokens, see `jaxnlp.text.new_tokens`. Raises: ValueError as there."""
        return type(self)(with_added_tokens(self._tokenizer, tokens), self.named, self.start, self.constraints)

    def without_min_length(self) -> Self:
        """This vocabulary without a minimum length of generated targets."""
        return type(self).from_json(self.to_json() | {"least": 0})

    def save(self, folder: Path, *, max_length: int) -> None:
        """Writes tokenizer files, which Transformers and `of_folder` read. Args: `max_length`: of a text, in tokens."""
        settings = {"model_max_length": max_length, "tokenizer_class": AS_WRITTEN[0]}
        inputs = {"model_input_names": ["input_ids", "attention_mask"]}
        write_files(self._tokenizer, folder, {**settings, **inputs, **self.named})

    def id_of(self, token: str) -> int | None:
        """The id of a token; None = no such token."""
        return self._tokenizer.token_to_id(token)

    @functools.cached_property
    def padding(self) -> int:
        """The id of padding."""
        return self._special("pad_token")

    @functools.cached_property
    def end(self) -> int:
        """The id of the end symbol."""
        return self._special("eos_token")

    @functools.cached_property
    def unknown(self) -> int:
        """The id of the unknown token."""
        return self._special("unk_token")

    def _special(self, name: str) -> int:
        token_id = self.id_of(self.named[name])
        assert token_id is not None  # see __init__
        return token_id

    @functools.cached_property
    def first(self) -> list[int]:
        """The ids of the tokens before each text: `bos_token`, or none."""
        return self._tokenizer.encode("").ids[:-1]

    @functools.cached_property
    def extra(self) -> int:
        """The number of sentinels, `<extra_id_0>` and so on."""
        return next(index for index in itertools.count() if self.id_of(f"<extra_id_{index}>") is None)

    def extra_id(self, index: int) -> int:
        """The id of a sentinel. Raises: ValueError when it does not exist."""
        token_id = self.id_of(f"<extra_id_{index}>")
        if token_id is None:
            raise ValueError(f"extra symbol {index} does not exist: this vocabulary has {self.extra}")
        return token_id

    @functools.cached_property
    def size(self) -> int:
        """V: one more than the largest id."""
        return 1 + max(self._tokenizer.get_vocab(with_added_tokens=True).values())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.size:,} {self.unit})"

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, PretrainedSubwords) and self.to_json() == other.to_json())

    def __hash__(self) -> int:
        return hash((self.size, self.start, self.end))

    def encode(self, text: str) -> list[int]:
        """The ids of a text's tokens, without start and end; those of `first` come before them.

        Raises: UnknownTokenError for a text that UTF-8 cannot encode.
        """
        refuse_surrogates(text)
        return [*self.first, *self._tokenizer.encode(text, add_special_tokens=False).ids]

    def encode_target(self, text: str) -> list[int]:
        """The ids of a target's tokens, as `encode`."""
        return self.encode(text)

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids, up to the first end symbol, without padding, unknown, start and `first`.

        Other special tokens, such as `<extra_id_0>`, are written.
        """
        return self._tokenizer.decode(self._written(ids), skip_special_tokens=False)

    def _written(self, ids: Iterable[int]) -> list[int]:
        """The ids that have a text."""
        silent = (self.padding, self.unknown, self.start, *self.first)
        before = itertools.takewhile(lambda token_id: token_id != self.end, map(int, ids))
        return [one for one in before if one not in silent]

    def tokens(self, ids: Iterable[int]) -> list[str]:
        """The tokens of a sequence of ids, as strings; `<id 32127>` for an embedding without a token."""
        return [self._tokenizer.id_to_token(int(one)) or f"<id {int(one)}>" for one in ids]

    def to_json(self) -> dict[str, Any]:
        """The fields as JSON; `tokenizer` is what a tokenizer.json has."""
        return {
            "tokenizer": json.loads(self._tokenizer.to_str()),
            "named": self.named,
            "start": self.start,
            **self.constraints.to_json(),
        }

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Self:
        """The tokenizer whose `to_json` this is. Raises: ValueError saying what is wrong."""
        require_fields(fields, "subwords", tokenizer=dict)
        try:
            tokenizer = tokenizer_of(fields["tokenizer"])
        except Exception as error:  # the library has no narrower class
            raise ValueError(f"subwords: not a tokenizer: {error}") from error
        return cls(tokenizer, **described(fields))


def described(fields: dict[str, Any]) -> dict[str, Any]:
    """The attributes in the JSON of a tokenizer. Raises: ValueError naming a field that is missing or wrong."""
    require_fields(fields, "subwords", named=dict, start=int)
    return {"named": fields["named"], "start": fields["start"], "constraints": GenerationConstraints.from_json(fields)}
