"""The evaluator of language models of images: the loss, and pictures for the report.

Further axes: I rows or columns of an image, R channels.
"""

import dataclasses
from typing import Any

import jax
import numpy as np

from jaxnlp.decoding.generation import compile_generation, decoder_of
from jaxnlp.decoding.sampling import Sampling
from jaxnlp.images.palette import Palette
from jaxnlp.pages.content import Picture
from jaxnlp.tasks import Scoring, Section
from jaxnlp.tasks.image_language_model.generation import completed, grid, sheet
from jaxnlp.tasks.language_model import evaluators as of_texts

COMPLETIONS = 4
"""Number of completions of each image in the report."""


@dataclasses.dataclass(frozen=True)
class Validation(of_texts.Validation):
    """The loss and its exponential; with task.sample_images also completions and new images for the report."""

    def compile_ahead(self, scoring: Scoring) -> None:
        """Starts to compile those of the completions, too."""
        super().compile_ahead(scoring)
        if (prompts := _prompts(scoring)) is not None:
            palette, params = scoring.trained.processor, scoring.whole_params()
            decoder = decoder_of(scoring.trained.model, palette.pixels)
            for given in (_half(palette), 0):
                pixels = given * palette.images.size
                new = palette.pixels - pixels
                rows = len(prompts) * COMPLETIONS
                compile_generation(scoring.compile, decoder, params, rows, 1 + pixels, max_new_tokens=new)

    def _sections(self, scoring: Scoring) -> list[Section]:
        if (prompts := _prompts(scoring)) is None:
            return []
        palette, params, key = scoring.trained.processor, scoring.whole_params(), jax.random.key(0)
        repeated = prompts.repeat(COMPLETIONS, axis=0)
        found, new = (
            completed(scoring.trained.model, params, palette, repeated, given, key, Sampling())
            for given in (_half(palette), 0)
        )
        rows = sheet(prompts, found.reshape(len(prompts), COMPLETIONS, *palette.images.shape), _half(palette))
        note = f"Each row: the given half of a validation image, {COMPLETIONS} completions, and the image."
        return [
            Section("Completions", Picture(rows, "completed images", note)),
            Section("Samples", Picture(grid(new), "generated images", "New images, from no given pixels.")),
        ]


def _prompts(scoring: Scoring) -> np.ndarray | None:
    """Images from the whole split [N, I, I, R]; None = no images in the report."""
    task: Any = scoring.trained.task
    images, count = scoring.split.examples, min(task.sample_images, len(scoring.split.examples))
    return np.stack([images[n * len(images) // count] for n in range(count)]) if count else None


def _half(palette: Palette) -> int:
    """The number of rows of the upper half of an image."""
    return palette.images.size // 2
