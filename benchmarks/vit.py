"""A training step of `vit_cifar10`: 6 layers, width 192, 4 heads, 128 images of 32 x 32 pixels in 64 patches.

Without stochastic depth, which PyTorch's layers do not have.
"""

import dataclasses
from typing import Any

import numpy as np

from benchmarks.case import Case, Step, torch_implementations
from configs.vit_cifar10 import get_config
from jaxnlp.models.vit import ViTConfig

BATCH, SIZE, CHANNELS, CLASSES = 128, 32, 3, 10
MEAN, STDDEV = (0.49, 0.48, 0.45), (0.25, 0.24, 0.26)
RECIPE = get_config().model
assert isinstance(RECIPE, ViTConfig)
CONFIG = dataclasses.replace(RECIPE, layer_dropout_rate=0.0)


def batch() -> dict[str, np.ndarray]:
    """Random pixels."""
    rng = np.random.default_rng(0)
    return {
        "images": rng.integers(0, 256, (BATCH, SIZE, SIZE, CHANNELS)).astype(np.uint8),
        "labels": rng.integers(0, CLASSES, BATCH).astype(np.int32),
    }


def flop() -> float:
    """Operations of the matrix products, forward and backward, without the gradient of the first convolution's
    inputs."""
    width, hidden = CONFIG.width, CONFIG.feed_forward_width or 4 * CONFIG.width
    patches = (SIZE // CONFIG.patch) ** 2
    blocks = CONFIG.num_layers * patches * (4 * width**2 + 2 * width * hidden + 2 * patches * width)
    first = (SIZE // 2) ** 2 * 9 * CHANNELS * (width // 2)
    stem = patches * (9 * (width // 2) * width + width**2)
    return BATCH * (6.0 * (blocks + stem) + 4.0 * first)


def ours() -> Step:
    from benchmarks.jax_step import jax_step
    from jaxnlp.images.processor import ImageProcessor
    from jaxnlp.tasks.classification import Classification

    processor = ImageProcessor(SIZE, CHANNELS, MEAN, STDDEV, tuple(map(str, range(CLASSES))))
    arrays = batch() | {"loss_mask": np.ones(BATCH, bool)}
    return jax_step(Classification(label_smoothing=0.1), CONFIG, processor, arrays)


def theirs(*, fused: bool, **settings: Any) -> Step:
    import torch
    import torch.nn.functional as F

    from benchmarks.torch_step import torch_step
    from benchmarks.torch_vit import TorchViT

    images, labels = torch.tensor(batch()["images"]), torch.tensor(batch()["labels"]).long()
    model = TorchViT(CONFIG, SIZE, MEAN, STDDEV, CLASSES)

    def loss(called: Any) -> torch.Tensor:
        return F.cross_entropy(called(images), labels, label_smoothing=0.1)

    return torch_step(model, loss, fused=fused, **settings)


def cases() -> list[Case]:
    return [
        Case(
            "vit",
            {"ours": ours, **torch_implementations(theirs)},
            tokens=BATCH * (SIZE // CONFIG.patch) ** 2,
            flop=flop(),
        )
    ]
