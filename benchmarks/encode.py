"""Vectors of texts and images, by encoders of Transformers: with jaxnlp and with Transformers.

Each encoder reads a text of 30 words or an image. A BERT also reads 32 texts of 30 words and 32 texts of 2 to 60 words,
and a ViT eight images.
"""

from pathlib import Path

import numpy as np

from benchmarks.answers import Weights
from benchmarks.case import Case, Step
from benchmarks.foreign import (
    ENCODERS,
    IMAGE_ENCODERS,
    SIDE,
    bits_of_weights,
    implementations,
    read,
    sentence,
    with_folder,
)

TEXTS = {
    "1 of 32 tokens": (30,),
    "32 of 32 tokens": (30,) * 32,
    "32 of 4 to 62 tokens": (*range(2, 62, 2), 2, 60),
}
"""Numbers of words, by the words for such texts: each text has two tokens more."""


def ours(model_type: str, texts: str, weights: Weights) -> Step:
    import jaxnlp

    run = with_folder(jaxnlp.load_pretrained, model_type).rounded(weights)
    given = [sentence(words) for words in TEXTS[texts]]
    return lambda: run.embed(given)


def theirs(model_type: str, texts: str, weights: Weights) -> Step:
    """The mean over tokens, as `run.embed` computes it; the projection of a CLIP."""
    import torch
    from transformers import AutoTokenizer

    def load(folder: Path):
        return AutoTokenizer.from_pretrained(folder), read(model_type, folder, weights)

    tokenizer, model = with_folder(load, model_type)
    given = [sentence(words) for words in TEXTS[texts]]

    @torch.no_grad()
    def step() -> object:
        inputs = tokenizer(given, padding=True, return_tensors="pt")
        outputs, mask = model(**inputs), inputs["attention_mask"][..., None]
        if "text_embeds" in outputs:
            return outputs.text_embeds.float().numpy()
        return ((outputs.last_hidden_state * mask).sum(dim=1) / mask.sum(dim=1)).float().numpy()

    return step


def images(batch: int) -> list[np.ndarray]:
    return list(np.random.default_rng(0).integers(0, 256, (batch, SIDE, SIDE, 3), np.uint8))


def ours_of_images(model_type: str, batch: int, weights: Weights) -> Step:
    import jaxnlp

    run, given = with_folder(jaxnlp.load_pretrained, model_type).rounded(weights), images(batch)
    return lambda: run.embed(given)


def theirs_of_images(model_type: str, batch: int, weights: Weights) -> Step:
    """The last vector of the class token; the projection of a CLIP."""
    import torch
    from transformers import AutoImageProcessor

    def load(folder: Path):
        return AutoImageProcessor.from_pretrained(folder), read(model_type, folder, weights)

    processor, model = with_folder(load, model_type)
    given = images(batch)

    @torch.no_grad()
    def step() -> object:
        pixels = processor(given, return_tensors="pt")["pixel_values"].to(model.dtype)
        outputs = model(pixels)
        vectors = outputs.image_embeds if "image_embeds" in outputs else outputs.last_hidden_state[:, 0]
        return vectors.float().numpy()

    return step


def cases() -> list[Case]:
    of_texts = [
        Case(
            "encode",
            implementations(ours, theirs, model_type, texts, weights),
            f"{model_type}, {texts}, {bits}",
            sum(TEXTS[texts]) + 2 * len(TEXTS[texts]),
        )
        for model_type in ENCODERS
        for bits, weights in bits_of_weights().items()
        for texts in (TEXTS if model_type == "bert" else ["1 of 32 tokens"])
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
