"""Settings of sentence-transformers that change embeddings after, or before, the encoder and its pooling."""

import dataclasses
from typing import Any, Self


@dataclasses.dataclass(frozen=True)
class EmbeddingSettings:
    """Settings that turn an encoder's outputs into embeddings, besides pooling. Equal by value.

    Attributes:
      prompts: (name, text) of each prompt.
      default_prompt: name of the prompt before each text; None = no prompt.
      include_prompt: whether the pooling reads the prompt's tokens.
      truncate_dim: number of leading entries of an embedding to keep, after normalization; None = all.
      similarity_fn_name: similarity that sentence-transformers computes; embeddings do not depend on it.
      normalize: whether embeddings are divided by their L2 norm.
    """

    prompts: tuple[tuple[str, str], ...] = ()
    default_prompt: str | None = None
    include_prompt: bool = True
    truncate_dim: int | None = None
    similarity_fn_name: str | None = None
    normalize: bool = False

    def __post_init__(self):
        prompts = dict(self.prompts)
        if not all(isinstance(text, str) for text in (*prompts, *prompts.values())):
            raise ValueError(f"prompts must be texts by name, got {prompts!r}")
        if self.default_prompt is not None and self.default_prompt not in prompts:
            raise ValueError(
                f"default_prompt_name {self.default_prompt!r} is not among the prompts: {', '.join(prompts) or 'none'}"
            )
        if not isinstance(self.include_prompt, bool):
            raise ValueError(f"include_prompt must be true or false, got {self.include_prompt!r}")
        if self.truncate_dim is not None and (type(self.truncate_dim) is not int or self.truncate_dim < 1):
            raise ValueError(f"truncate_dim must be a whole number of at least 1, got {self.truncate_dim!r}")

    @property
    def prompt(self) -> str:
        """The prompt before each text."""
        return "" if self.default_prompt is None else dict(self.prompts)[self.default_prompt]

    def to_json(self) -> dict[str, Any]:
        """Its fields as JSON."""
        return dataclasses.asdict(self) | {"prompts": [list(prompt) for prompt in self.prompts]}

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Self:
        """The settings whose `to_json` this is. Raises: ValueError when they are not settings."""
        try:
            return cls(**fields | {"prompts": tuple((name, text) for name, text in fields["prompts"])})
        except (TypeError, KeyError, ValueError) as error:
            raise ValueError(f"embedding settings cannot be read: {error}") from error


PLAIN = EmbeddingSettings()
"""No prompts, and embeddings as the pooling computes them."""
