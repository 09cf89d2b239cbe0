"""A family that the library does not have: a classifier of images. Data, model, task, recipe and verb.

python -m tests.seam.images WORKDIR

Axes that the library's glossary does not have: I rows or columns of an image, P pixels of a patch. T counts patches.
"""

import base64
import dataclasses
import hashlib
import struct
import sys
import zlib
from pathlib import Path

import chex
import flax.linen as nn
import grain
import jax
import jax.numpy as jnp
import numpy as np
import tyro
from rich.console import Console

from data import DataConfig
from jaxnlp.corpus import Corpus, Split
from jaxnlp.models import ModelConfig, Parameter
from jaxnlp.nn.compute import Compute
from jaxnlp.nn.dense import Dense
from jaxnlp.nn.dropout import Dropout
from jaxnlp.pages.content import HeatMap, Line, Lines, Picture
from jaxnlp.tasks import Command, Evaluation, Evaluator, Metric, MetricKind, Objective, Section, Task
from train.config import TrainConfig
from train.loop import fit
from train.optimizer import AdamW


@dataclasses.dataclass(frozen=True)
class ImageProcessor:
    """The size of the images and the names of their classes."""

    size: int
    labels: tuple[str, ...]

    def to_json(self):
        return {"size": self.size, "labels": list(self.labels)}

    @classmethod
    def from_json(cls, fields):
        return cls(int(fields["size"]), tuple(fields["labels"]))


@dataclasses.dataclass(frozen=True)
class BarImages(DataConfig):
    """Images with one bright row or column, and noise."""

    size: int = 8
    """Pixels of a side."""
    noise: float = 0.2
    """Standard deviation of the noise."""

    def load(self, seed, processor=None):
        processor = processor or ImageProcessor(self.size, ("horizontal", "vertical"))
        parts = {name: self._images(np.random.default_rng(n)) for n, name in enumerate(("train", "validation"))}
        images, labels = parts["train"]
        rows = [{"images": x, "labels": y, "loss_mask": np.array(True)} for x, y in zip(images, labels, strict=True)]
        train = grain.MapDataset.source(rows).seed(seed).shuffle().repeat(2**20).batch(self.batch_size)
        return Corpus(
            train=train.to_iter_dataset(grain.ReadOptions(num_threads=0, prefetch_buffer_size=0)),
            splits={name: _split(*part) for name, part in parts.items()},
            processor=processor,
            description=f"{len(rows)} images of {self.size} x {self.size} pixels",
            fingerprint=hashlib.sha256(images.tobytes()).hexdigest(),
        )

    def _images(self, generator):
        images = self.noise * generator.normal(size=(50, self.size, self.size)).astype(np.float32)
        labels = generator.integers(2, size=50).astype(np.int32)
        for image, label, place in zip(images, labels, generator.integers(self.size, size=50), strict=True):
            (image.T if label else image)[place] += 1.0
        return images, labels


def _split(images, labels):
    pad = -len(images) % 16
    arrays = {"images": images, "labels": labels, "loss_mask": np.ones(len(images), bool)}
    arrays = {name: np.pad(x, [(0, pad)] + [(0, 0)] * (x.ndim - 1)) for name, x in arrays.items()}
    batches = [{name: x[i : i + 16] for name, x in arrays.items()} for i in range(0, len(images), 16)]
    return Split(tuple(batches), tuple(zip(images, labels.tolist(), strict=True)))


@dataclasses.dataclass(frozen=True)
class PatchConfig(ModelConfig):
    width: int = 8
    """Model width, D."""
    patch: int = 4
    """Pixels of a patch's side."""
    dropout_rate: float = 0.1
    """Share of features dropped in training."""

    def check(self, processor):
        if processor.size % self.patch:
            raise ValueError(
                f"model.patch must divide the side of the images, {processor.size} pixels, got {self.patch}"
            )

    def build(self, processor):
        return PatchClassifier(self, len(processor.labels))

    def inputs(self, processor):
        return (jax.ShapeDtypeStruct((1, processor.size, processor.size), jnp.float32),)

    def parameter(self, path):
        return {
            ("patches", "kernel"): Parameter("PD", "below", matrix=True),
            ("patches", "bias"): Parameter("D", "below"),
            ("blocks", "dense", "kernel"): Parameter("LDD", matrix=True),
            ("blocks", "dense", "bias"): Parameter("LD"),
            ("head", "kernel"): Parameter("DC", matrix=True, head=True),
            ("head", "bias"): Parameter("C", head=True),
        }[path]


class PatchLayer(nn.Module):
    width: int
    compute: Compute

    @nn.compact
    def __call__(self, x, _):
        dense = Dense(self.width, kernel_init=nn.initializers.normal(0.2), compute=self.compute, name="dense")
        return x + jnp.tanh(dense(x)), None


class PatchClassifier(nn.Module):
    config: PatchConfig
    classes: int

    @nn.compact
    def __call__(self, images, *, deterministic=True):
        """Args: images [B, I, I]. Returns: logits [B, C], float32."""
        chex.assert_rank(images, 3)
        config, compute, (batch, size, _) = self.config, self.config.compute, images.shape
        side, pixels = size // config.patch, config.patch**2
        axes = chex.Dimensions(B=batch, I=size, T=side * side, D=config.width, C=self.classes)
        chex.assert_shape(images, axes["BII"])
        patches = images.reshape(batch, side, config.patch, side, config.patch).swapaxes(2, 3).reshape(-1, pixels)
        initial = nn.initializers.lecun_normal()
        x = Dense(config.width, kernel_init=initial, compute=compute, name="patches")(patches)
        scanned = nn.scan(PatchLayer, variable_axes={"params": 0}, split_rngs={"params": True}, length=2)
        x, _ = scanned(config.width, compute, name="blocks")(x, None)
        x = jnp.square(x.reshape(axes["BTD"])).mean(axis=1)
        x = Dropout(config.dropout_rate)(x, deterministic=deterministic)
        chex.assert_shape(x, axes["BD"])
        logits = Dense(self.classes, compute=compute, name="head")(x)
        chex.assert_shape(logits, axes["BC"])
        return logits.astype(jnp.float32)


def logits_of(model):
    return lambda params, batch: model.apply({"params": params}, batch["images"])


@dataclasses.dataclass(frozen=True)
class ImageValidation(Evaluator):
    """Loss and accuracy, with a picture of the least certain image."""

    def compile_ahead(self, scoring):
        super().compile_ahead(scoring)
        scoring.compile_outputs(scoring.once(logits_of, scoring.trained.model))

    def __call__(self, scoring):
        trained, examples = scoring.trained, scoring.split.examples
        logits = scoring.outputs(scoring.once(logits_of, trained.model))
        labels = np.array([label for _, label in examples])
        found = scoring.sums()
        # The same number by another way: outputs are in the order of the examples.
        assert found["accuracy"] == Metric(float(np.mean(logits.argmax(axis=1) == labels)), len(labels))
        margin = np.abs(logits[:, 0] - logits[:, 1])
        image = examples[int(margin.argmin())][0]
        weights = tuple(map(tuple, np.abs(image).round(3).tolist()))
        names = tuple(map(str, range(len(image))))
        curve = Line("margin", tuple(range(len(margin))), tuple(np.sort(margin).round(3).tolist()))
        sections = [
            Section("Least certain", Picture(png(image), "the least certain image")),
            Section("Its pixels", HeatMap(names, names, weights)),
            Section("Margins", Lines((curve,), "image", "margin")),
        ]
        return Evaluation(found, sections=sections)


def png(image):
    """A grey image [I, I] as PNG in base64."""
    pixels = np.uint8(255 * (image - image.min()) / np.ptp(image))
    raw = b"".join(b"\0" + row.tobytes() for row in pixels)

    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    head = struct.pack(">IIBBBBB", len(pixels), len(pixels), 8, 0, 0, 0, 0)
    whole = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(raw)) + chunk(b"IEND", b"")
    return base64.b64encode(whole).decode()


@dataclasses.dataclass(frozen=True)
class ClassifyImage(Command):
    """Names the class of an image."""

    file: tyro.conf.Positional[Path]
    """A .npy file with the image [I, I]."""

    def __call__(self, trained):
        image, size = np.load(self.file).astype(np.float32), trained.processor.size
        if image.shape != (size, size):
            raise ValueError(f"{self.file}: expected {size} x {size} pixels, got the shape {image.shape}")
        logits = trained.model.apply({"params": trained.params}, image[None])
        print(trained.processor.labels[int(logits.argmax())])


@dataclasses.dataclass(frozen=True)
class ImageClassification(Task):
    """The class of an image."""

    evaluators = {"validation": ImageValidation}
    commands = {"classify": ClassifyImage}

    def metrics(self, processor, split):
        return {"loss": MetricKind("images", "nats", "lower"), "accuracy": MetricKind("images")}

    def objective(self, model, corpus):
        def loss(params, batch, key, carry):
            rngs = None if key is None else {"dropout": key}
            logits = model.apply({"params": params}, batch["images"], deterministic=key is None, rngs=rngs)
            nll = -jnp.take_along_axis(jax.nn.log_softmax(logits), batch["labels"][:, None], axis=1)[:, 0]
            mask = batch["loss_mask"]
            count, right = mask.sum(dtype=jnp.float32), (logits.argmax(axis=1) == batch["labels"]) & mask
            nll = jnp.where(mask, nll, 0.0).sum()
            metrics = {"loss": (nll, count), "accuracy": (right.sum(dtype=jnp.float32), count)}
            return nll / jnp.maximum(count, 1.0), (metrics, carry)

        return Objective(loss)


def get_config(**changes):
    """The recipe."""
    plain = TrainConfig(
        recipe="toy_images",
        data=BarImages(batch_size=16),
        model=PatchConfig(),
        task=ImageClassification(),
        optimizer=AdamW(learning_rate=2e-2, weight_decay=0.01, layer_decay=0.8),
        ema_decay=0.9,
        total_steps=40,
        evaluate_every_steps=20,
        checkpoint_every_steps=10,
    )
    return dataclasses.replace(plain, **changes)


if __name__ == "__main__":
    from tests.seam import images  # by its own name, which the run's config records

    fit(images.get_config(), sys.argv[1], console=Console())
