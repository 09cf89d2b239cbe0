"""Changes of valid files: bytes, words of a dictionary, and JSON values. Each is a function of a random generator."""

import json
import random
from collections.abc import Sequence
from typing import Any

WORDS = [
    *(b"\0", b"\n", b"\r", b"\r\n", b"\t", b" ", b"", b'"', b'""', b"'", b"\\", b",", b";", b"|", b"#", b"-", b"_"),
    *(b"{", b"}", b"[", b"]", b"[[[", b"{}", b"[]", b"null", b"true", b"NaN", b"Infinity", b"-Infinity", b"1e39"),
    *(b"0", b"-1", b"1", b"1e400", b"1e-400", b"999999999999", b"1000000000000000000000000", b"9" * 5000, b"0x10"),
    *(b"\xff", b"\xfe\xff", b"\xff\xfe", b"\xef\xbb\xbf", b"\xed\xa0\x80", b"\xc0\x80", b"\x80", b"\x1f\x8b", b"\x85"),
    *("\u2028".encode(), "\u200b".encode(), "\u202e".encode(), "\xa0".encode(), "\ufeff".encode(), b"\\ud800", b"\x1a"),
    *("漢".encode(), "😀".encode(), "e\u0301".encode(), "İ".encode(), b"sep=;\n", b"-DOCSTART-", b"# text = a", b"1-2"),
    *(b"1.1", b"B-X", b"I-Y", b"root", b"[MASK]", b"[SEP]", b"</s>", b"<0x00>", b"__class__", b"../", b"/etc/passwd"),
    *(b"\x80\x04", b"cos\nsystem\n", b"cnumpy\ndtype\n", b"\x93NUMPY", b"PK\x03\x04", b"\x00\x00\x00\x80", b"\x7f" * 8),
]
"""Texts that readers treat in a way of their own."""
DEEP = 100_000
"""Depth of a nested JSON value."""
VALUES: list[Any] = [
    *(None, True, False, 0, -1, 1, 2, 0.5, -0.0, 1e39, 1e308, 10**18, 2**31, -(2**63), 10**30, float("nan")),
    *(float("inf"), "", "x", "0", "a\0b", "\ud800", "../../x", "/etc/passwd", "x" * 10_000, [], {}, [[]], [None]),
    *({"a": {}}, [1, 2, 3], ["a", "a"], {"": ""}, "os:system", "jaxnlp.cli.restart:restart"),
]
"""Values of JSON that a reader may not expect."""


def mutated(seed: bytes, others: Sequence[bytes], generator: random.Random) -> bytes:
    """A seed after one to six changes; of JSON half of them change values, not bytes."""
    if seed[:1] in b"{[" and len(seed) < 2**20 and generator.random() < 0.5:
        try:
            value = json.loads(seed)
        except (ValueError, RecursionError):
            value = None
        if value is not None:
            for _ in range(generator.choice((1, 1, 1, 2, 3))):
                value = _other_value(value, generator)
            return _dumped(value, generator)
    content = bytearray(seed)
    for _ in range(generator.choice((1, 1, 2, 3, 6))):
        content = _other_bytes(content, others, generator)
    return bytes(content)


def _other_bytes(content: bytearray, others: Sequence[bytes], generator: random.Random) -> bytearray:
    size = len(content)
    start = generator.randrange(size + 1)
    stop = min(size, start + generator.choice((1, 2, 4, 8, 40, 200)))
    match generator.randrange(10):
        case 0 if size:
            content[start % size] ^= 1 << generator.randrange(8)
        case 1 if size:
            content[start % size] = generator.choice((0, 1, 9, 10, 13, 32, 34, 44, 92, 127, 128, 255))
        case 2 | 3:
            content[start:start] = generator.choice(WORDS)
        case 4:
            content[start:stop] = generator.choice(WORDS)
        case 5:
            del content[start:stop]
        case 6:
            del content[start:]
        case 7:
            content[start:start] = content[start:stop] * generator.choice((1, 1, 2, 50))
        case 8 if others:
            other = generator.choice(others)
            there = generator.randrange(len(other) + 1)
            content[start:stop] = other[there : there + generator.choice((1, 8, 60, 1_000))]
        case _:
            content[start:start] = generator.randbytes(generator.choice((1, 2, 8)))
    return content


def _other_value(value: Any, generator: random.Random) -> Any:
    """The value with one of its parts replaced, removed or doubled."""
    if isinstance(value, dict) and value and generator.random() < 0.95:
        name = generator.choice(list(value))
        match generator.randrange(8):
            case 0:
                return {key: one for key, one in value.items() if key != name}
            case 1:
                return {
                    (key if key != name else generator.choice(("", "x", key * 2))): one for key, one in value.items()
                }
            case 2:
                return {**value, generator.choice(("", "x", "type", "auto_map")): generator.choice(VALUES)}
            case _:
                return {**value, name: _other_value(value[name], generator)}
    if isinstance(value, list) and value and generator.random() < 0.95:
        index = generator.randrange(len(value))
        match generator.randrange(6):
            case 0:
                return value[:index] + value[index + 1 :]
            case 1:
                return [*value[:index], value[index], *value[index:]]
            case _:
                return [*value[:index], _other_value(value[index], generator), *value[index + 1 :]]
    if isinstance(value, int | float) and not isinstance(value, bool) and generator.random() < 0.3:
        return generator.choice((value + 1, -value, value * 10**6, value // 3, str(value % 10**9)))
    return generator.choice(VALUES)


def _dumped(value: Any, generator: random.Random) -> bytes:
    text = json.dumps(value, ensure_ascii=generator.random() < 0.7).encode("utf-8", "surrogatepass")
    if generator.random() < 0.02:  # a value that is nested deeply
        for part in (b"null", b"0", b'""', b"1"):
            if part in text:
                return text.replace(part, b"[" * DEEP + b"]" * DEEP, 1)
    return text
