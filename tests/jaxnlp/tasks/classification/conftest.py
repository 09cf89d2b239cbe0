"""Digits, learned by a small Vision Transformer; texts of a table, learned by a small BERT."""

import functools

import jax
import numpy as np
import pytest
from PIL import Image

from configs import bert_classify
from configs.vit_digits import get_config
from data.images import Images
from jaxnlp.models.bert import BertConfig
from tests.jaxnlp.tasks.two_devices import train
from train.config import update


@pytest.fixture(scope="module", autouse=True)
def standard_promotion():
    """As users have it."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


@pytest.fixture(scope="session")
def run(tmp_path_factory):
    """A run's folder."""
    folder = tmp_path_factory.mktemp("digits") / "run"
    small = {"num_layers": 1, "num_heads": 2, "width": 16, "feed_forward_width": 32, "patch": 4, "pooling": "cls"}
    fields = {f"model.{name}": value for name, value in small.items()}
    fields |= {"total_steps": 60, "evaluate_every_steps": 60, "data.shift": 0, "optimizer.schedule.warmup": 5}
    return train(update(get_config(), **fields), folder)


WORDS = {"arts": "paint", "sport": "run", "world": "vote"}
"""A word of each class."""


def write_table(path, kind):
    """A table whose labels are told by the words of the texts: a class, classes, or a number."""
    generator, rows = np.random.default_rng(0), []
    for number in range(120):
        present = [name for name in WORDS if generator.random() < 0.5]
        if kind == "class":
            present = [list(WORDS)[number % 2]]
        text = " ".join(["the", *(WORDS[name] for name in present), *generator.choice(["cat", "sat"], 2)])
        labels = {"class": "".join(present), "classes": " ".join(present), "number": str(1.5 * len(present))}
        rows.append(f"{text},{labels[kind]}\n")
    path.write_text("text,label\n" + "".join(rows))


@pytest.fixture(scope="session")
def text_run(tmp_path_factory):
    """A function of `class`, `classes` or `number`: the folder of a run that predicts it, trained once."""

    @functools.cache
    def trained(kind):
        folder = tmp_path_factory.mktemp(kind)
        write_table(folder / "table.csv", kind)
        config = update(
            bert_classify.get_config(),
            **{
                "data.path": str(folder / "table.csv"),
                "data.predict": kind,
                **({"data.separator": " "} if kind == "classes" else {}),
                "data.validation_fraction": 0.2,
                "data.max_length": 16,
                "model.encoder": BertConfig(
                    num_layers=1, num_heads=2, width=16, feed_forward_width=32, max_positions=16, use_pooler=False
                ),
                "model.token_dropout_rate": 0.0,
                "task.label_smoothing": 0.0 if kind == "number" else 0.1,
                "init_from": None,
                "optimizer.learning_rate": 2e-2,
                "optimizer.schedule.warmup": 5,
                "best_metric": "pearson" if kind == "number" else "macro_f1",
                **dict.fromkeys(("total_steps", "evaluate_every_steps", "checkpoint_every_steps"), 60),
            },
        )
        return train(config, folder / "run")

    return trained


@pytest.fixture(scope="session")
def digit(tmp_path_factory):
    """The file of an image from the validation split."""
    example = Images(validation_fraction=0.2).load(0).split("validation").examples[3]
    path = tmp_path_factory.mktemp("image") / "digit.png"
    Image.fromarray(example.image[..., 0]).save(path)
    return path
