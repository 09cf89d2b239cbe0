"""`jaxnlp generate RUN` for images: completions of images, and new ones, as arrays and as pictures.

Further axes: I rows or columns of an image, R channels.
"""

import base64
import dataclasses
import math
from pathlib import Path
from typing import Annotated, Any

import jax
import numpy as np
import tyro

from jaxnlp.cli.options import LIKELY
from jaxnlp.config import Count, Rate, Seed, UserPath
from jaxnlp.decoding.generation import decoder_of
from jaxnlp.decoding.generation import generate as generate_tokens
from jaxnlp.decoding.sampling import Sampling
from jaxnlp.images.palette import START, Palette
from jaxnlp.images.pictures import png
from jaxnlp.inference.arguments import is_one, listed
from jaxnlp.saving.atomic_files import require_place, write_file
from jaxnlp.tasks import Command, Trained
from jaxnlp.typing import Params, PRNGKey

NOT_GIVEN = 128
"""Brightness of missing pixels in pictures."""
SIDE = 64
"""Size in pixels to which small images are enlarged in pictures."""


def completed(
    model: Any, params: Params, palette: Palette, images: np.ndarray, given: int, key: PRNGKey, sampling: Sampling
) -> np.ndarray:
    """Images [N, I, I, R] uint8 whose rows from `given` on are generated, in colours of the palette."""
    ids = palette.encode(images)[:, : given * palette.images.size].astype(np.int32)
    new = generate_tokens(
        decoder_of(model, palette.pixels),
        params,
        np.pad(ids, [(0, 0), (1, 0)], constant_values=START),
        max_new_tokens=palette.pixels - ids.shape[1],
        key=key,
        sampling=sampling,
    )
    return palette.decode(np.concatenate([ids, np.stack(list(new), axis=1)], axis=1))


def generate(
    trained: Trained,
    prompts: Any = None,
    *,
    given: float = 0.5,
    num_samples: int = 1,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int = 0,
    resize: bool = False,
) -> np.ndarray:
    """Completions of each image, or of one image: [N, S, I, I, R] or [S, I, I, R] uint8, in colours of the palette.

    Args:
      prompts: an image, or a list of N: paths, Pillow's images, or arrays [I, I] or [I, I, R]; None = new images.
      given: share of an image's rows, from the top, to keep; rounded to whole rows.
      num_samples: number of completions of each image, S.
      temperature: divides the logits; 0 takes the most probable colour each time.
      top_k: sample only from the k most probable colours; None = from all.
      top_p: sample only from the smallest set of colours with this total probability; None = from all.
      seed: the same seed gives the same images.
      resize: scale images of another size, and crop their middle square.

    Raises: ValueError, OSError for invalid options, and for images that are unreadable or have another size.
    """
    if not 0.0 <= given < 1.0 or num_samples < 1:
        raise ValueError(f"given must be in [0, 1) and num_samples at least 1, got {given} and {num_samples}")
    palette, sampling = trained.processor, Sampling(temperature, top_k, top_p)
    reader = palette.images
    one = prompts is None or is_one(prompts)
    if prompts is None:
        images, rows = np.zeros((1, *reader.shape), np.uint8), 0
    else:
        inputs = [prompts] if one else listed(prompts, "generate: expected one image")
        read = [reader.array(image, resize=resize) for image in inputs]
        images, rows = np.array(read, np.uint8).reshape(-1, *reader.shape), int(given * reader.size)
    shape = len(images), num_samples, *reader.shape
    if not len(images):
        return np.zeros(shape, np.uint8)
    repeated, key = images.repeat(num_samples, axis=0), jax.random.key(seed)
    found = completed(trained.model, trained.inference_params, palette, repeated, rows, key, sampling).reshape(shape)
    return found[0] if one else found


def warm_up(trained: Trained, *, num_samples: int = 1, given: float = 0.5) -> None:
    """Compiles the programs of `generate` ahead, for one image and for none."""
    for prompts in (np.zeros(trained.processor.images.shape, np.uint8), None):
        generate(trained, prompts, num_samples=num_samples, given=given)


@dataclasses.dataclass(frozen=True)
class Generate(Command):
    """Completes images, or generates new ones, as a picture.

    Each row of the picture has the given part of an image, its completions and the image itself.
    """

    summary = "Generates texts from a prompt, or images."

    prompt: Annotated[tuple[UserPath, ...], LIKELY] = ()
    """Image files to complete; none = new images."""
    given: Rate = 0.5
    """Share of an image's rows, from the top, to keep."""
    num_samples: Count = 8
    """Number of completions of each image, or of new images."""
    sampling: Annotated[Sampling, tyro.conf.arg(name="")] = dataclasses.field(default_factory=Sampling)
    seed: Seed = 0
    """The same seed gives the same images."""
    resize: bool = False
    """Scale images of another size than the model's, and crop their middle square; always on for a model that was
    trained with --data.resize."""
    out: Path = Path("images.png")
    """The PNG file to write."""

    def __call__(self, trained: Trained) -> None:
        """Writes the picture, and prints its path.

        Raises: ValueError, OSError for unreadable images, and when the picture cannot be written.
        """
        require_place(self.out, ".png")
        reader = trained.processor.images
        options: dict[str, Any] = dataclasses.asdict(self.sampling)
        options |= {"num_samples": self.num_samples, "seed": self.seed}
        if self.prompt:
            images = np.stack([reader.array(path, resize=self.resize) for path in self.prompt])
            found = generate(trained, list(images), given=self.given, **options)
            picture = sheet(images, found, int(self.given * reader.size))
        else:
            picture = grid(generate(trained, **options))
        write_file(self.out, base64.b64decode(picture))
        print(self.out)


def sheet(images: np.ndarray, found: np.ndarray, given: int) -> str:
    """Images [N, I, I, R] and their completions [N, S, I, I, R] as a picture in base64: a row for each image has its
    first `given` rows of pixels, its completions, and the image."""
    parts = images.copy()
    parts[:, given:] = NOT_GIVEN
    rows = np.concatenate([parts[:, None], found, images[:, None]], axis=1)
    return grid(rows.reshape(-1, *images.shape[1:]), rows.shape[1])


def grid(images: np.ndarray, columns: int | None = None) -> str:
    """Images [N, I, I, R] in rows, as a picture in base64; None = about as many rows as columns."""
    return png(images, columns=columns or math.ceil(len(images) ** 0.5), scale=max(1, SIDE // images.shape[1]))
