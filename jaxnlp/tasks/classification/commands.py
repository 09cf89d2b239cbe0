"""The verbs of classifiers of images: `jaxnlp predict` and `attention`."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import tyro

from jaxnlp.commands.files import chunks
from jaxnlp.files import write_file
from jaxnlp.images.processor import SUFFIXES
from jaxnlp.tasks import Command, Trained
from jaxnlp.tasks.classification.evaluators import probabilities_of
from jaxnlp.tasks.classification.rollout_page import render_page
from jaxnlp.typing import Params

BATCH = 64
"""Images that are read at once."""


@dataclasses.dataclass(frozen=True)
class Predict(Command):
    """Names the class of images, a line for each: the class, its probability and the file, with tabs between them."""

    files: tyro.conf.Positional[tuple[Path, ...]] = ()
    """Image files; of a folder, the images in it."""
    resize: bool = False
    """Cut and scale images of another size than the model reads."""
    json: bool = False
    """Print a JSON object for each image, with the probabilities of all classes."""

    def __call__(self, trained: Trained) -> None:
        """Prints the predictions. Raises: ValueError, OSError for files that are missing or no images of that size."""
        predict = jax.jit(probabilities_of(trained.model))
        classes = trained.processor.classes
        for files in chunks(image_files(self.files), BATCH):
            images = np.stack([trained.processor.read(file, resize=self.resize) for file in files])
            padded = np.pad(images, [(0, BATCH - len(images)), (0, 0), (0, 0), (0, 0)])
            found = np.asarray(predict(trained.params, {"images": padded}))[: len(images)]
            for file, row in zip(files, found, strict=True):
                best = int(row.argmax())
                if self.json:
                    shares = {name: round(float(x), 6) for name, x in zip(classes, row, strict=True)}
                    answer = {"file": str(file), "class": classes[best], "probabilities": shares}
                    print(json.dumps(answer, ensure_ascii=False))
                else:
                    print(f"{classes[best]}\t{row[best]:.2f}\t{file}")


def image_files(given: tuple[Path, ...]) -> list[Path]:
    """The files, and the images in the folders among them. Raises: ValueError when there is none; names the folder."""
    if not given:
        raise ValueError("give image files, or a folder of them")
    found = []
    for path in given:
        inside = sorted(file for file in path.iterdir() if file.suffix.lower() in SUFFIXES) if path.is_dir() else [path]
        if not inside:
            raise ValueError(f"{path} has no image files ({', '.join(SUFFIXES)}) in it; folders in it are not read")
        found += inside
    return found


@dataclasses.dataclass(frozen=True)
class AttentionRollout(Command):
    """Shows which patches of images the prediction rests on, as a page: the attention of all layers, multiplied."""

    files: tyro.conf.Positional[tuple[Path, ...]] = ()
    """Image files; of a folder, the images in it."""
    out: Path = Path("attention.html")
    """The page."""
    resize: bool = False
    """Cut and scale images of another size than the model reads."""

    def __call__(self, trained: Trained) -> None:
        """Writes the page. Raises: ValueError, OSError for files that are missing, and models without attention."""
        config: Any = trained.model.config
        if not config.has_rollout:
            raise ValueError(f"{trained.name} has no attention: its model is a {type(trained.model).__name__}")
        files = image_files(self.files)
        images = np.stack([trained.processor.read(file, resize=self.resize) for file in files])
        read = jax.jit(lambda params, image: looked_at(trained.model, params, image))
        found = [read(trained.params, image[None]) for image in images]
        classes = trained.processor.classes
        captions = [
            f"{file.name}: {classes[int(np.argmax(row))]} ({np.max(row):.2f})"
            for file, (row, _) in zip(files, found, strict=True)
        ]
        shares = np.concatenate([np.asarray(share) for _, share in found])
        write_file(self.out, render_page(images, shares, captions, trained.name).encode())
        print(self.out)


def looked_at(model: Any, params: Params, images: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The probabilities of the classes [B, C], and the share of each patch in the prediction."""
    return probabilities_of(model)(params, {"images": images}), model.attention_rollout(params, images)
