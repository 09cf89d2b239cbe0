"""A training step of `text_cnn`: windows of 3, 4 and 5 words, 100 features each, width 300, 50 texts of 32 words."""

from typing import Any

import numpy as np

from benchmarks.case import Case, Step, torch_implementations
from configs.text_cnn import get_config
from jaxnlp.models.text_cnn import TextCNNConfig
from jaxnlp.targets import OneClass
from jaxnlp.text.classifier_processor import TextClassifierProcessor, one_part
from jaxnlp.text.wordpiece import SPECIAL, WordPieceVocabulary

VOCABULARY, BATCH, WORDS, CLASSES = 18_000, 50, 32, 2
RECIPE = get_config().model
assert isinstance(RECIPE, TextCNNConfig)
CONFIG: TextCNNConfig = RECIPE


def batch() -> dict[str, np.ndarray]:
    """Texts without padding, because course code counts windows of padding, and ours does not."""
    rng = np.random.default_rng(0)
    return {
        "tokens": rng.integers(len(SPECIAL), VOCABULARY, (BATCH, WORDS)).astype(np.int32),
        "labels": rng.integers(0, CLASSES, BATCH).astype(np.int32),
    }


def flop() -> float:
    """Operations of the convolutions, forward and backward, without windows over the ends."""
    return 6.0 * BATCH * WORDS * CONFIG.embedding_width * CONFIG.feature_maps * sum(CONFIG.windows)


def ours() -> Step:
    from benchmarks.jax_step import jax_step
    from jaxnlp.tasks.classification import Classification

    vocabulary = WordPieceVocabulary.of_pieces([*SPECIAL, *map(str, range(VOCABULARY - len(SPECIAL)))])
    processor = TextClassifierProcessor(vocabulary, WORDS, one_part(OneClass(tuple(map(str, range(CLASSES))))))
    arrays = batch()
    masks = {"attention_mask": np.ones((BATCH, WORDS), bool), "loss_mask": np.ones(BATCH, bool)}
    return jax_step(Classification(), CONFIG, processor, arrays | masks)


def theirs(*, fused: bool, **settings: Any) -> Step:
    import torch
    import torch.nn.functional as F

    from benchmarks.torch_step import torch_step
    from benchmarks.torch_text_cnn import TorchTextCNN

    tokens, labels = (torch.tensor(array).long() for array in batch().values())
    model = TorchTextCNN(CONFIG, VOCABULARY, CLASSES)
    return torch_step(model, lambda called: F.cross_entropy(called(tokens), labels), fused=fused, **settings)


def cases() -> list[Case]:
    return [Case("text_cnn", {"ours": ours, **torch_implementations(theirs)}, tokens=BATCH * WORDS, flop=flop())]
