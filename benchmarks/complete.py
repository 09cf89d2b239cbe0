"""50 tokens after a prompt, greedy, with a cache on both sides: with jaxnlp, also in 8 bits, and Transformers."""

from pathlib import Path

from benchmarks.case import Case, Step
from benchmarks.foreign import DECODERS, NEW, PROMPT, implementations, with_folder


def ours(model_type: str, bits: int) -> Step:
    import jaxnlp

    run = with_folder(jaxnlp.load_pretrained, model_type)
    run = run.quantised() if bits == 8 else run
    return lambda: run.generate(PROMPT, max_new_tokens=NEW, temperature=0.0)


def theirs(model_type: str, bits: int) -> Step:
    """In 32 bits, whatever ours has."""
    del bits
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    def load(folder: Path):
        return AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder).eval()

    tokenizer, model = with_folder(load, model_type)

    @torch.no_grad()
    def step() -> object:
        inputs = tokenizer(PROMPT, return_tensors="pt")
        options = {"min_new_tokens": NEW, "max_new_tokens": NEW, "do_sample": False, "pad_token_id": 0}
        return tokenizer.decode(model.generate(**inputs, **options)[0])

    return step


def cases() -> list[Case]:
    return [
        Case("complete", implementations(ours, theirs, model_type, bits), f"{model_type}, {bits} bits", NEW)
        for model_type in DECODERS
        for bits in (32, 8)
    ]
