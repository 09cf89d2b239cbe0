"""`jaxnlp parse`."""

import dataclasses

from jaxnlp.tasks import Command


@dataclasses.dataclass(frozen=True)
class Parse(Command):
    """Draws the dependency trees of sentences."""
