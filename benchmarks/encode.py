"""The vector of a text of 30 words and of an image, by encoders of Transformers: with jaxnlp and Transformers.

BERT also reads 32 texts at once, and a ViT eight images.
"""

from pathlib import Path

import numpy as np

from benchmarks.answers import Weights
from benchmarks.case import Case, Step
from benchmarks.foreign import (
    ENCODERS,
    IMAGE_ENCODERS,
    SENTENCE,
    SIDE,
    bits_of_weights,
    implementations,
    with_folder,
)


def ours(model_type: str, batch: int, weights: Weights) -> Step:
    import jaxnlp

    run = with_folder(jaxnlp.load_pretrained, model_type).rounded(weights)
    return lambda: run.embed([SENTENCE] * batch)


def theirs(model_type: str, batch: int, weights: Weights) -> Step:
    """The mean over tokens, as `run.embed` computes it."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    def load(folder: Path):
        return AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder, dtype=weights).eval()

    tokenizer, model = with_folder(load, model_type)

    @torch.no_grad()
    def step() -> object:
        inputs = tokenizer([SENTENCE] * batch, padding=True, return_tensors="pt")
        hidden, mask = model(**inputs).last_hidden_state, inputs["attention_mask"][..., None]
        return ((hidden * mask).sum(dim=1) / mask.sum(dim=1)).float().numpy()

    return step


def images(batch: int) -> list[np.ndarray]:
    return list(np.random.default_rng(0).integers(0, 256, (batch, SIDE, SIDE, 3), np.uint8))


def ours_of_images(model_type: str, batch: int, weights: Weights) -> Step:
    import jaxnlp

    run, given = with_folder(jaxnlp.load_pretrained, model_type).rounded(weights), images(batch)
    return lambda: run.embed(given)


def theirs_of_images(model_type: str, batch: int, weights: Weights) -> Step:
    """The last vector of the class token."""
    import torch
    from transformers import AutoImageProcessor, AutoModel

    def load(folder: Path):
        model = AutoModel.from_pretrained(folder, add_pooling_layer=False, dtype=weights)
        return AutoImageProcessor.from_pretrained(folder), model.eval()

    processor, model = with_folder(load, model_type)
    given = images(batch)

    @torch.no_grad()
    def step() -> object:
        pixels = processor(given, return_tensors="pt")["pixel_values"].to(model.dtype)
        return model(pixels).last_hidden_state[:, 0].float().numpy()

    return step


def cases() -> list[Case]:
    of_texts = [
        Case(
            "encode",
            implementations(ours, theirs, model_type, batch, weights),
            f"{model_type}, {batch} of 32 tokens, {bits}",
            32 * batch,
        )
        for model_type in ENCODERS
        for bits, weights in bits_of_weights().items()
        for batch in ((1, 32) if model_type == "bert" else (1,))
    ]
    of_images = [
        Case(
            "encode",
            implementations(ours_of_images, theirs_of_images, model_type, batch, weights),
            f"{model_type}, {batch}, {bits}",
        )
        for model_type in IMAGE_ENCODERS
        for bits, weights in bits_of_weights().items()
        for batch in ((1, 8) if model_type == "vit" else (1,))
    ]
    return of_texts + of_images
