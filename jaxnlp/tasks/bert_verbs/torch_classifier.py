"""A PyTorch program for exported weights: a classifier whose pooling no class of Transformers has."""

from typing import Any

from jaxnlp.models.text_vectors import TextVectorsConfig
from jaxnlp.targets import Scale, Targets
from jaxnlp.tasks import Trained

PROGRAM_FILE = "classify.py"

_POOLING = {
    "mean": "(hidden * mask[..., None]).sum(dim=1) / mask.sum(dim=1, keepdim=True)",
    "cls": "hidden[:, 0]",
}
_PROGRAM = '''"""The classifier of this folder in PyTorch: python classify.py {usage} """

import pathlib
import sys

import safetensors.torch
import torch
import transformers

FOLDER, NAMES = pathlib.Path(__file__).parent, {names}
tokenizer = transformers.AutoTokenizer.from_pretrained(FOLDER)
encoder = transformers.AutoModel.from_pretrained(FOLDER).eval()
head = safetensors.torch.load_file(FOLDER / "heads.safetensors")


@torch.no_grad()
def classify(texts, pairs=None):
    """{returns}"""
    batch = tokenizer(texts, pairs, padding=True, truncation=True, max_length={max_length}, return_tensors="pt")
    hidden, mask = encoder(**batch).last_hidden_state, batch["attention_mask"]
    vectors = {pooling}
    scores = vectors @ head["{head}.kernel"] + head["{head}.bias"]
    return {values}


if __name__ == "__main__":
    columns = [sys.argv[1 + place :: {texts}] for place in range({texts})]
    for *shown, row in zip(*columns, classify(*columns)):
        print({shown}, *shown, sep="\\t")
'''
_USAGE = {1: '"A text." "Another."', 2: '"A text." "Its pair." "Another." "Its pair."'}


def torch_classifier(trained: Trained, max_length: int) -> str | None:
    """The program of a model whose only head reads the mean over tokens or the first token; None for other models.

    Args:
      trained: a model with a BERT.
      max_length: maximum length of texts in tokens.
    """
    config: Any = trained.model.config
    if not isinstance(config, TextVectorsConfig) or config.pooling not in _POOLING:
        return None
    found = config.only_head(trained.processor)
    if found is None:
        return None
    return _PROGRAM.format(
        pooling=_POOLING[config.pooling],
        head=found.head,
        max_length=max_length,
        names=list(found.targets.names),
        texts=found.texts,
        usage=_USAGE[found.texts],
        **_meaning(found.targets),
    )


def _meaning(targets: Targets) -> dict[str, str]:
    """What the program makes of the scores, and how it prints a row."""
    if isinstance(targets, Scale):
        return {
            "returns": f"The numbers [N, 1], from {targets.lowest} to {targets.highest}.",
            "values": f"{targets.lowest} + {targets.width} * scores.clamp(0.0, 1.0)",
            "shown": 'f"{row.item():.4g}"',
        }
    if targets.several:
        return {
            "returns": "The probabilities [N, C] of the classes NAMES, each by itself.",
            "values": "torch.sigmoid(scores)",
            "shown": '", ".join(name for name, share in zip(NAMES, row) if share >= 0.5)',
        }
    return {
        "returns": "The probabilities [N, C] of the classes NAMES.",
        "values": "torch.softmax(scores, dim=-1)",
        "shown": 'NAMES[row.argmax()], f"{row.max():.2f}"',
    }
