"""JSON files of objects: one object a line, a list of objects, or one object."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from jaxnlp.corpus import DataError

DEEPEST = 100
"""Maximum levels of nested lists and objects in JSON. Files have at most ten; Python fails at about 1,000."""
_SEPARATOR = re.compile(r"[\s,]*")


def parse_json(text: str | bytes, **options: Any) -> Any:
    """The value of a JSON text. Args: options: of `json.loads`.

    Raises: ValueError for any other text, and for a value with more than `DEEPEST` levels.
    """
    level: list[Any] = []
    try:
        value = json.loads(text, **options)
        level = [value]
    except RecursionError:
        pass
    for _ in range(DEEPEST if level else 0):
        within = (one.values() if isinstance(one, dict) else one for one in level if isinstance(one, dict | list))
        level = [one for values in within for one in values if isinstance(one, dict | list)]
        if not level:
            return value
    raise ValueError(f"lists and objects within each other, more than {DEEPEST} levels deep")


def is_json(text: str) -> bool:
    """Whether a file's text is JSON: it starts with an object, a list of objects, or spaCy's list of lists."""
    first = re.match(r'\s*(?:\[\s*(?:\{|\[\s*")|\{.*)', text)
    if first is None or first.group().lstrip()[0] == "[":
        return first is not None
    try:
        parse_json(first.group())
    except ValueError:
        return False
    return True


def json_objects(text: str, file: str) -> Iterator[tuple[int, Any]]:
    """The values of JSON lines, or of a list, each with the line at which it starts, from 1; or one object.

    Args:
      text: of the file, with LF at line ends.
      file: its name, for messages.

    Raises: DataError naming the line that is not JSON, or whose object has a name twice.
    """
    first = text.lstrip().partition("\n")[0].rstrip()
    if first.startswith("{") and not first.endswith("}"):
        yield text.partition("{")[0].count("\n") + 1, _parsed(text, file, 1)
        return
    if not first.startswith("[") or _is_one_of_several(first, text):
        for line, content in enumerate(text.split("\n"), 1):
            if content.strip():
                yield line, _parsed(content, file, line)
        return
    _parsed(text, file, 1, object_pairs_hook=dict)  # syntax errors of the whole list have the right line
    decoder, index, counted, line = json.JSONDecoder(), text.index("[") + 1, 0, 1
    while text[index := _SEPARATOR.match(text, index).end()] != "]":  # type: ignore[union-attr]  # it always matches
        line, counted = line + text.count("\n", counted, index), index
        stop = decoder.raw_decode(text, index)[1]
        yield line, _parsed(text[index:stop], file, line)
        index = stop


def _is_one_of_several(first: str, text: str) -> bool:
    """Whether a first line is a whole list, with further lines below it."""
    try:
        return first != text.strip() and isinstance(parse_json(first), list)
    except ValueError:
        return False


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object. Raises: ValueError for a repeated name, of which only the last would count."""
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise ValueError(f"the name {Counter(name for name, _ in pairs).most_common(1)[0][0]!r} occurs twice")
    return fields


def _parsed(text: str, file: str, line: int, object_pairs_hook: Any = _unique) -> Any:
    try:
        return parse_json(text, object_pairs_hook=object_pairs_hook)
    except ValueError as error:
        what = str(error)
        if isinstance(error, json.JSONDecodeError):
            line, what = line + error.lineno - 1, f"{error.msg.removesuffix(' at')} at character {error.colno}"
        raise DataError(
            f"{file}, line {line}: not JSON: {what}; expected an object a line, or a list of objects"
        ) from error
