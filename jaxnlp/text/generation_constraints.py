"""Constraints on the tokens of generated texts."""

from typing import Any, NamedTuple, Self

from jaxnlp.text import require_fields

_KEYS = ("forced_first", "forced_end", "never", "least", "renormalised")
"""The fields in JSON."""


class GenerationConstraints(NamedTuple):
    """Constraints on each generated text. It ends with the end symbol, or at its maximum length.

    Attributes:
      forced_bos: its first token, with probability 1; None = any.
      forced_eos: whether its token at the maximum length is the end symbol, with probability 1.
      suppressed_tokens: tokens with probability 0; the others' probabilities stay.
      min_length: minimum number of tokens before the end symbol, unless the maximum length is less.
      renormalize: whether the probabilities of the remaining tokens are rescaled to add up to 1.
    """

    forced_bos: int | None = None
    forced_eos: bool = False
    suppressed_tokens: tuple[int, ...] = ()
    min_length: int = 0
    renormalize: bool = False

    def to_json(self) -> dict[str, Any]:
        """Its fields in the JSON of a tokenizer."""
        return dict(zip(_KEYS, self, strict=True)) | {"never": list(self.suppressed_tokens)}

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Self:
        """The constraints in the JSON of a tokenizer. Raises: ValueError naming a field that is missing or wrong."""
        require_fields(fields, "subwords", forced_end=bool, never=list)
        first, never = fields.get("forced_first"), fields["never"]
        if not (first is None or type(first) is int):
            raise ValueError(f"subwords: forced_first: expected the id of a token or null, got {first!r}")
        if not all(type(one) is int for one in never):
            raise ValueError(f"subwords: never: expected the ids of tokens, got {never!r}")
        least, renormalised = fields.get("least", 0), fields.get("renormalised", False)  # earlier runs have neither
        if not (type(least) is int and least >= 0 and type(renormalised) is bool):
            raise ValueError(
                f"subwords: expected a number as least and true or false as renormalised, got {fields!r:.80}"
            )
        return cls(first, fields["forced_end"], tuple(never), least, renormalised)


UNCONSTRAINED = GenerationConstraints()
