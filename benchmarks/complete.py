"""50 tokens after a prompt, greedy, with a cache on both sides: with jaxnlp and with Transformers."""

from pathlib import Path

from benchmarks.case import Case, Step
from benchmarks.foreign import DECODERS, NEW, PROMPT, bits_of_weights, implementations, read, with_folder
from jaxnlp.tasks import Weights


def ours(model_type: str, weights: Weights) -> Step:
    import jaxnlp

    run = with_folder(jaxnlp.load_pretrained, model_type).rounded(weights)
    return lambda: run.generate(PROMPT, max_new_tokens=NEW, temperature=0.0)


def theirs(model_type: str, weights: Weights) -> Step:
    """In 32 bits where ours has 8."""
    import torch
    from transformers import AutoTokenizer

    def load(folder: Path):
        model = read(model_type, folder, "float32" if weights == "int8" else weights)
        return AutoTokenizer.from_pretrained(folder), model

    tokenizer, model = with_folder(load, model_type)

    @torch.no_grad()
    def step() -> object:
        inputs = tokenizer(PROMPT, return_tensors="pt")
        options = {"min_new_tokens": NEW, "max_new_tokens": NEW, "do_sample": False, "pad_token_id": 0}
        return tokenizer.decode(model.generate(**inputs, **options)[0])

    return step


def cases() -> list[Case]:
    types: dict[str, Weights] = {**bits_of_weights(), "8 bits": "int8"}
    return [
        Case("complete", implementations(ours, theirs, model_type, weights), f"{model_type}, {bits}", NEW)
        for model_type in DECODERS
        for bits, weights in types.items()
    ]
