"""The vectors of one text of 30 words and of 32 of them, by encoders of Transformers: with jaxnlp and Transformers."""

from pathlib import Path

from benchmarks.case import Case, Step
from benchmarks.foreign import ENCODERS, SENTENCE, implementations, with_folder


def ours(model_type: str, batch: int) -> Step:
    import jaxnlp

    run = with_folder(jaxnlp.load_pretrained, model_type)
    return lambda: run.embed([SENTENCE] * batch)


def theirs(model_type: str, batch: int) -> Step:
    """The mean over tokens, as `run.embed` computes it."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    def load(folder: Path):
        return AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()

    tokenizer, model = with_folder(load, model_type)

    @torch.no_grad()
    def step() -> object:
        inputs = tokenizer([SENTENCE] * batch, padding=True, return_tensors="pt")
        hidden, mask = model(**inputs).last_hidden_state, inputs["attention_mask"][..., None]
        return ((hidden * mask).sum(dim=1) / mask.sum(dim=1)).numpy()

    return step


def cases() -> list[Case]:
    return [
        Case(
            "encode",
            implementations(ours, theirs, model_type, batch),
            f"{model_type}, {batch} of 32 tokens",
            32 * batch,
        )
        for model_type in ENCODERS
        for batch in (1, 32)
    ]
