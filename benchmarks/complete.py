"""50 tokens after a prompt, greedy, with a cache on both sides: with jaxnlp and Transformers."""

from pathlib import Path

from benchmarks.case import Case, Step
from benchmarks.foreign import DECODERS, NEW, PROMPT, implementations, with_folder


def ours(model_type: str) -> Step:
    import jaxnlp

    run = with_folder(jaxnlp.load_pretrained, model_type)
    return lambda: run.generate(PROMPT, max_new_tokens=NEW, temperature=0.0)


def theirs(model_type: str) -> Step:
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
    return [Case("complete", implementations(ours, theirs, model_type), model_type, NEW) for model_type in DECODERS]
