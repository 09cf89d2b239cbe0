"""Tables, weights and configs of small runs of classifiers, and a way to train them that takes seconds."""

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from rich.console import Console

from data.text_table import TextTable
from jaxnlp.convert.pretrained_encoder import Pretrained, save_pretrained
from jaxnlp.models.bert import Bert, BertConfig
from jaxnlp.models.bert_classifier import BertClassifierConfig
from jaxnlp.tasks.classification import Classification
from jaxnlp.text.classifier_processor import PairReading
from jaxnlp.text.wordpiece import SPECIAL, WordPieceVocabulary
from tests.random_parameters import random_parameters
from train.config import TrainConfig, update
from train.loop import FitResult, fit
from train.optimizer import AdamW
from train.parallel import make_parallel

PAIR_WORDS = ["film", "plot", "dog", "cat", "sea", "sand", "red", "blue"]
VOCABULARY = WordPieceVocabulary.of_pieces([*SPECIAL, "good", "bad", *PAIR_WORDS])
SHAPE = BertConfig(num_layers=1, num_heads=2, width=8, feed_forward_width=12, max_positions=16, epsilon=1e-6)


def sst_rows(count: int, seed: int) -> Iterator[tuple[str, str, str]]:
    """Reviews of four words: the number of good ones is the label."""
    generator = np.random.default_rng(seed)
    for number in range(count):
        label = generator.integers(5)
        words = ["good"] * label + ["bad"] * (4 - label)
        yield f"{number}\tsst{seed}-{number}", " ".join(generator.permutation(words)), str(label)


def sts_rows(count: int, seed: int) -> Iterator[tuple[str, str, str]]:
    """Pairs of texts of four words: the number of common words decides the similarity."""
    generator = np.random.default_rng(seed)
    for number in range(count):
        words, shared = generator.permutation(PAIR_WORDS), generator.integers(5)
        texts = words[:4], [*words[:shared], *words[4 : 8 - shared]]
        yield f"{number}\tsts{seed}-{number}", "\t".join(map(" ".join, texts)), f"{shared * 1.25}"


def write_tables(folder: Path) -> Path:
    """Writes tables of sst and sts as the minBERT project has them: 60 rows for training, 21 for dev, 5 for test."""
    for part, make, texts, label in (
        ("ids-sst", sst_rows, "sentence", "sentiment"),
        ("sts", sts_rows, "sentence1\tsentence2", "similarity"),
    ):
        for seed, (name, count) in enumerate((("train", 60), ("dev", 21), ("test-student", 5))):
            lines = [f"{row}\t{text}\t{value}" for row, text, value in make(count, seed)]
            header = f"\tid\t{texts}\t{label}"
            if seed == 2:
                lines, header = [line.rpartition("\t")[0] for line in lines], header.rpartition("\t")[0]
            (folder / f"{part}-{name}.csv").write_text("\n".join([header, *lines]) + "\n")
    return folder


def encoder_params(size: int = VOCABULARY.size) -> Any:
    """Random parameters of a BERT of `SHAPE`, about as large as initial ones, on the host."""
    return random_parameters(Bert(SHAPE, size), np.zeros((1, 1), np.int32), spread=0.02)


def write_weights(folder: Path) -> Path:
    """Writes the random weights as Transformers writes them."""
    save_pretrained(folder, Pretrained(SHAPE, encoder_params(), None, VOCABULARY))
    return folder


def make_config(tables: Path, weights: Path, parts: tuple[str, ...] = ("sst", "sts"), **changes: Any) -> TrainConfig:
    """A run of a classifier of parts, of a second."""
    pairs: PairReading = "apart" if "sts" in parts else "together"
    similarity = "cosine" if "sts" in parts else "learned"
    dropout_rate = 0.1 if parts == ("sts",) else 0.0  # the cosine has no head
    config = TrainConfig(
        recipe="tiny",
        data=TextTable(
            parts=parts, pairs=pairs, path=str(tables), batch_size=10, max_length=16, evaluation_batch_size=8
        ),
        model=BertClassifierConfig(pooling="mean", similarity=similarity, head_dropout_rate=dropout_rate),
        task=Classification(),
        optimizer=AdamW(learning_rate=1e-2),
        init_from=str(weights),
        best_metric="mean_score",
        total_steps=4,
        evaluate_every_steps=4,
        log_every_steps=2,
    )
    return update(config, **changes)


def train(config: TrainConfig, folder: Path) -> FitResult:
    """Trains on one device, which compiles faster than eight, and draws no report."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("train.loop.write_report", lambda _: None)
        patch.setattr("train.loop.make_parallel", lambda mode, **_: make_parallel(mode, jax.devices()[:1]))
        with jax.numpy_dtype_promotion("standard"):  # Optax raises a Python float to an integer power
            return fit(config, folder, console=Console(file=io.StringIO()))
