"""Reads SentencePiece models without the sentencepiece package."""

import struct
from collections import defaultdict
from pathlib import Path

from jaxnlp.corpus import DataError
from jaxnlp.text.normalization import Normalization
from jaxnlp.text.subwords import UNKNOWN_TEXT, SubwordKind, Subwords

_NORMAL, _UNKNOWN, _CONTROL, _BYTE = 1, 2, 3, 6
_KINDS: dict[int, SubwordKind] = {1: "unigram", 2: "bpe"}
_OTHER_KINDS = {3: "word", 4: "char"}

_Fields = dict[int, list[int | bytes]]
"""The values of a protocol buffer by field number: varints as int, all others as bytes."""


def read_sentencepiece(path: Path, *, extra: int = 0) -> Subwords:
    """The tokenizer in a SentencePiece `.model` file, unigram or BPE.

    Texts get SentencePiece's tokens, and tokens its texts. The ids are those of `Subwords`; the tokens keep their
    order.

    Args:
      path: the file.
      extra: number of extra symbols to add.

    Raises:
      FileNotFoundError: when the file does not exist.
      DataError: naming the file, when it is not a SentencePiece model, or has unsupported features, such as
        user-defined symbols.
    """
    if not path.is_file():
        raise FileNotFoundError(f"the SentencePiece model {path} does not exist")
    return subwords_of(path.read_bytes(), str(path), extra=extra)


def subwords_of(raw: bytes, name: str, *, extra: int = 0) -> Subwords:
    """The tokenizer in the bytes of a SentencePiece `.model` file. Args: name: of the file, for messages.

    Raises: DataError as `read_sentencepiece`.
    """
    try:
        return _subwords(_fields(raw), extra)
    except (ValueError, IndexError, KeyError, TypeError, struct.error) as error:
        raise DataError(f"{name} is not a SentencePiece model that can be read: {error}") from error


def _subwords(model: _Fields, extra: int) -> Subwords:
    trainer, normalizer = (_fields(_bytes(model[number][-1])) for number in (2, 3))
    number = _flag(trainer, 3, 1)
    kind = _KINDS.get(number)
    if kind is None:
        raise ValueError(f"its model_type is {_OTHER_KINDS.get(number, number)}, only unigram and bpe are supported")
    if _bytes(trainer.get(44, [UNKNOWN_TEXT.encode()])[-1]) != UNKNOWN_TEXT.encode():
        raise ValueError("it has its own text for unknown tokens, which is not supported (unk_surface)")
    if 5 in model and _fields(_bytes(model[5][-1])).get(2, [b""])[-1]:
        raise ValueError("it rewrites decoded texts, which is not supported (denormalizer_spec)")
    if _flag(trainer, 24, 0):
        raise ValueError("its tokens end with the space, which is not supported (treat_whitespace_as_suffix)")
    if not _flag(normalizer, 5, 1):
        raise ValueError("its tokens have unescaped spaces, which is not supported (escape_whitespaces is off)")
    tokens, scores, raw = list[str](), list[float](), list[str]()
    for encoded in model[1]:
        fields = _fields(_bytes(encoded))
        text, number = _bytes(fields[1][-1]).decode(), _flag(fields, 3, _NORMAL)
        if number == _NORMAL:
            tokens.append(text)
            scores.append(struct.unpack("<f", _bytes(fields[2][-1]))[0] if 2 in fields else 0.0)
        elif number == _BYTE:
            raw.append(text)
        elif number not in (_UNKNOWN, _CONTROL):
            raise ValueError(f"its token {text!r} is of type {number} (user-defined or unused), which is not supported")
    if raw not in ([], [f"<0x{byte:02X}>" for byte in range(256)]):
        raise ValueError("its tokens for bytes are not <0x00> to <0xFF>")
    if bool(raw) != bool(_flag(trainer, 35, 0)):
        raise ValueError("its setting byte_fallback does not fit its tokens for bytes")
    normalization = Normalization(
        charsmap=_bytes(normalizer.get(2, [b""])[-1]),
        strip=bool(_flag(normalizer, 4, 1)),
        prefix=bool(_flag(normalizer, 3, 1)),
        sign_is_blank=True,
    )
    return Subwords(kind, tuple(tokens), tuple(scores), bool(raw), extra, normalization)


def _fields(raw: bytes) -> _Fields:
    """The fields of a protocol buffer message. Source: protobuf.dev/programming-guides/encoding."""
    fields: _Fields = defaultdict(list)
    position = 0
    while position < len(raw):
        tag, position = _varint(raw, position)
        number, wire = tag >> 3, tag & 7
        value: int | bytes
        if wire == 0:
            value, position = _varint(raw, position)
        else:
            if wire == 2:
                length, position = _varint(raw, position)
            elif wire in (1, 5):
                length = 8 if wire == 1 else 4
            else:
                raise ValueError(f"no field starts at byte {position}")
            value, position = raw[position : position + length], position + length
            if position > len(raw):
                raise ValueError(f"it ends within a field, after {len(raw):,} bytes")
        fields[number].append(value)
    return dict(fields)


def _varint(raw: bytes, position: int) -> tuple[int, int]:
    """A number in groups of seven bits, lowest bits first, and the position after it."""
    value = shift = 0
    while True:
        byte = raw[position]
        value |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if byte < 0x80:
            return value, position


def _flag(fields: _Fields, number: int, default: int) -> int:
    value = fields.get(number, [default])[-1]
    if not isinstance(value, int):
        raise ValueError(f"field {number} is not a number")
    return value


def _bytes(value: int | bytes) -> bytes:
    if not isinstance(value, bytes):
        raise ValueError(f"expected text, got the number {value}")
    return value
