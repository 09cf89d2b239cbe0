"""Semantic textual similarity of two sentences, from 0 to 5, by a small pretrained BERT.

Source: CS224N, default final project (minBERT), part 2; the cosine of mean vectors after Reimers and Gurevych 2019.
Cost: 4 minutes on one CPU core with bfloat16 instructions, 8 on two without, from all-MiniLM-L6-v2.
Expect: a Pearson correlation of 0.88 on the development set.
Command: jaxnlp train bert_sts --workdir runs/bert_sts
"""

from configs import bert_sst
from train.config import TrainConfig, update


def get_config() -> TrainConfig:
    return update(
        bert_sst.get_config(),
        recipe="bert_sts",
        **{
            "data.source": "cs224n_sts",
            "data.pairs": "apart",
            "model.similarity": "cosine",
            "model.token_dropout_rate": 0.0,
            "task.label_smoothing": 0.0,
            "ema_decay": None,
            "best_metric": "pearson",
            "total_steps": 378,  # two epochs
            "evaluate_every_steps": 126,
            "checkpoint_every_steps": 126,
        },
    )
