"""The merges of a BPE model in tokenizer.json."""

from collections.abc import Mapping
from typing import Any


def merges_of(model: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The merges of a BPE model in tokenizer.json, pairs or texts with a blank between both parts.

    Raises: ValueError for a second part without `continuing_subword_prefix`: the tokenizers library cuts off as many
      bytes anyway, and may end the process.
    """
    pairs = [merge.split(" ") if isinstance(merge, str) else merge for merge in model["merges"]]
    prefix = model.get("continuing_subword_prefix") or ""
    for first, second in pairs:
        if not second.startswith(prefix):
            raise ValueError(f"the second part of the merge {first!r}, {second!r} does not begin with {prefix!r}")
    return [(first, second) for first, second in pairs]
