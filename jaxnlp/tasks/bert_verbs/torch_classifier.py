"""A PyTorch program for exported weights: a classifier whose pooling no class of Transformers has."""

from typing import Any

from jaxnlp.models.text_vectors import TextVectorsConfig
from jaxnlp.tasks import Trained

PROGRAM_FILE = "classify.py"

_POOLING = {
    "mean": "(hidden * mask[..., None]).sum(dim=1) / mask.sum(dim=1, keepdim=True)",
    "cls": "hidden[:, 0]",
}
_PROGRAM = '''"""The classifier of this folder in PyTorch: python classify.py "A text." "Another." """

import pathlib
import sys

import safetensors.torch
import torch
import transformers

FOLDER, NAMES = pathlib.Path(__file__).parent, {names!r}
tokenizer = transformers.AutoTokenizer.from_pretrained(FOLDER)
encoder = transformers.AutoModel.from_pretrained(FOLDER).eval()
head = safetensors.torch.load_file(FOLDER / "heads.safetensors")


@torch.no_grad()
def classify(texts, pairs=None):
    """The probabilities [N, C] of the classes NAMES."""
    batch = tokenizer(texts, pairs, padding=True, truncation=True, max_length={max_length}, return_tensors="pt")
    hidden, mask = encoder(**batch).last_hidden_state, batch["attention_mask"]
    vectors = {pooling}
    return torch.softmax(vectors @ head["{head}.kernel"] + head["{head}.bias"], dim=-1)


if __name__ == "__main__":
    for text, row in zip(sys.argv[1:], classify(sys.argv[1:])):
        print(NAMES[row.argmax()], f"{{row.max():.2f}}", text, sep="\\t")
'''


def torch_classifier(trained: Trained, max_length: int) -> str | None:
    """The program of a model whose only head reads the mean over tokens or the first token; None for other models.

    Args:
      trained: a model with a BERT.
      max_length: maximum length of texts in tokens.
    """
    config: Any = trained.model.config
    if not isinstance(config, TextVectorsConfig) or config.pooling not in _POOLING:
        return None
    found = config.only_classes(trained.processor)
    if found is None:
        return None
    fields = {"names": list(found.names), "max_length": max_length, "head": found.head}
    return _PROGRAM.format(pooling=_POOLING[config.pooling], **fields)
