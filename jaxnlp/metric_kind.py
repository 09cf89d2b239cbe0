"""A metric's unit, direction and name. Without jax, so that reports start at once."""

from typing import Literal, NamedTuple


class MetricKind(NamedTuple):
    """Description of a metric, declared before it is measured.

    Attributes:
      of: what is counted, as a plural noun: tokens, questions, examples.
      unit: nats; points (BLEU); choices (perplexity); or "" for fractions of 1. Metrics of one unit share a chart.
      better: whether lower or higher values are better.
      training_only: whether only training measures it, as an objective that is not the loss.
      title: its name on pages and charts, such as UAS; "" = the name with blanks for `_` and `/`.
    """

    of: str = "examples"
    unit: str = ""
    better: Literal["lower", "higher"] = "higher"
    training_only: bool = False
    title: str = ""

    @property
    def per(self) -> str:
        """The unit in words, `nats per token`; "" = no unit. Points are for the whole corpus; choices are not shown."""
        if self.unit == "points":
            return self.unit
        if self.unit == "choices":
            return ""
        return f"{self.unit} per {singular(self.of)}" if self.unit else ""


DECLARED = ("of", "unit", "better", "title")
"""Each metric's fields in a run's environment.json."""


def singular(plural: str) -> str:
    """The singular of a plural: token for tokens, entity for entities."""
    return plural[:-3] + "y" if plural.endswith("ies") else plural.removesuffix("s")
