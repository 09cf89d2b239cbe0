"""70 tokens for a text of 30 tokens, greedy and by 4 beams, by encoder-decoders with a cache: with jaxnlp and with
Transformers."""

from pathlib import Path
from typing import Any

from benchmarks.answers import Weights
from benchmarks.case import Case, Step
from benchmarks.foreign import (
    ENCODER_DECODERS,
    REWRITTEN,
    bits_of_weights,
    implementations,
    read,
    sentence,
    with_folder,
)

SOURCE = sentence(29)
"""A text of 30 tokens with the end symbol."""


def ours(model_type: str, beams: int, weights: Weights) -> Step:
    import jaxnlp

    run = with_folder(jaxnlp.load_pretrained, model_type).rounded(weights)
    return lambda: run.translate(SOURCE, num_beams=beams, length_penalty=1.0, length_offset=0.0)


def theirs(model_type: str, beams: int, weights: Weights) -> Step:
    import torch
    from transformers import AutoTokenizer

    def load(folder: Path):
        return AutoTokenizer.from_pretrained(folder), read(model_type, folder, weights)

    tokenizer, model = with_folder(load, model_type)
    options: dict[str, Any] = {"num_beams": beams, "max_new_tokens": REWRITTEN, "do_sample": False}
    options |= {"early_stopping": "never"} if beams > 1 else {}

    @torch.no_grad()
    def step() -> object:
        inputs = tokenizer(SOURCE, return_tensors="pt")
        return tokenizer.decode(model.generate(**inputs, **options)[0], skip_special_tokens=True)

    return step


def cases() -> list[Case]:
    return [
        Case(
            "rewrite",
            implementations(ours, theirs, model_type, beams, weights),
            f"{model_type}, {'greedy' if beams == 1 else f'{beams} beams'}, {bits}",
            REWRITTEN,
        )
        for model_type in ENCODER_DECODERS
        for bits, weights in bits_of_weights().items()
        for beams in (1, 4)
    ]
