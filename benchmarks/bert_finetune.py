"""A fine-tuning step of a small BERT: 6 layers, width 384, 12 heads, vocabulary 30,522, two classes, batch 32 x 64, or
32 x 128 on a GPU.

Ours is the model of the recipe bert_cfimdb, with the pooler, like the opponents, and without token dropout.
"""

from typing import Any

import numpy as np

from benchmarks.case import Case, Step, on_gpu, torch_implementations
from jaxnlp.models.bert import BertConfig
from jaxnlp.models.bert_classifier import BertClassifierConfig
from jaxnlp.targets import OneClass
from jaxnlp.tasks.classification import Classification
from jaxnlp.text.classifier_processor import TextClassifierProcessor, one_part
from jaxnlp.text.wordpiece import SPECIAL, WordPieceVocabulary

VOCABULARY, WIDTH, HEADS, LAYERS, BATCH, CLASSES = 30_522, 384, 12, 6, 32, 2
POSITIONS = 128 if on_gpu() else 64
DROPOUT = 0.1
CONFIG = BertClassifierConfig(
    encoder=BertConfig(num_layers=LAYERS, num_heads=HEADS, width=WIDTH, max_positions=POSITIONS),
    pooling="pooler",
)


def batch() -> dict[str, np.ndarray]:
    """Sentences of three quarters of the positions or more, padded."""
    rng = np.random.default_rng(0)
    return {
        "tokens": rng.integers(0, VOCABULARY, (BATCH, POSITIONS)).astype(np.int32),
        "lengths": rng.integers(POSITIONS * 3 // 4, POSITIONS + 1, BATCH).astype(np.int32),
        "labels": rng.integers(0, CLASSES, BATCH).astype(np.int32),
    }


def task_batch() -> dict[str, np.ndarray]:
    """The same batch in the form of `data.text_table`."""
    arrays = batch()
    return {
        "tokens": arrays["tokens"],
        "segments": np.zeros_like(arrays["tokens"]),
        "attention_mask": np.arange(POSITIONS) < arrays["lengths"][:, None],
        "loss_mask": np.ones(BATCH, bool),
        "labels": arrays["labels"],
    }


def flop() -> float:
    """Operations of the matrix products, forward and backward."""
    return 6.0 * BATCH * POSITIONS * LAYERS * (12 * WIDTH * WIDTH + 2 * POSITIONS * WIDTH)


def processor() -> TextClassifierProcessor:
    """A processor whose number of tokens decides the shapes."""
    vocabulary = WordPieceVocabulary.of_pieces([*SPECIAL, *map(str, range(VOCABULARY - len(SPECIAL)))])
    return TextClassifierProcessor(vocabulary, POSITIONS, one_part(OneClass(tuple(map(str, range(CLASSES))))))


def ours() -> Step:
    from benchmarks.jax_step import jax_step

    return jax_step(Classification(), CONFIG, processor(), task_batch())


def theirs(*, fused: bool, **settings: Any) -> Step:
    import torch
    import torch.nn.functional as F

    from benchmarks.torch_bert import TorchBert
    from benchmarks.torch_step import torch_step

    arrays = batch()
    tokens, lengths, labels = (torch.tensor(arrays[name]).long() for name in ("tokens", "lengths", "labels"))
    model = TorchBert(VOCABULARY, WIDTH, HEADS, LAYERS, POSITIONS, CLASSES, DROPOUT, fused=fused)
    return torch_step(model, lambda called: F.cross_entropy(called(tokens, lengths), labels), fused=fused, **settings)


def cases() -> list[Case]:
    return [
        Case("bert_finetune", {"ours": ours, **torch_implementations(theirs)}, tokens=BATCH * POSITIONS, flop=flop())
    ]
