"""A small pretrained BERT that decides whether two questions ask the same.

Source: CS224N, default final project (minBERT), part 2; features of a pair after Conneau et al. 2017.
Differs: without Quora's large training file, 16,000 rows of its dev file are for training, and the other 4,212 for
validation.
Cost: 15 minutes on two busy CPU cores with bfloat16 instructions, 48 on one without, from all-MiniLM-L6-v2.
Expect: 84% accuracy on the development set after the first of two epochs; the second epoch memorises the rows. Pairs of
Quora were in the encoder's training.
Command: jaxnlp train bert_quora --workdir runs/bert_quora
"""

from configs import bert_sst
from train.config import TrainConfig, update


def get_config() -> TrainConfig:
    return update(
        bert_sst.get_config(),
        recipe="bert_quora",
        **{
            "data.source": "cs224n_quora",
            "data.pairs": "apart",
            "model.pair_layer": "separate",
            "model.cosine_logit": (10.8, 0.82),  # a logistic regression on 2,000 training rows
            "model.token_dropout_rate": 0.0,
            "task.label_smoothing": 0.0,
            "ema_decay": None,
            "total_steps": 1000,  # two epochs
            "evaluate_every_steps": 250,
            "checkpoint_every_steps": 250,
        },
    )
