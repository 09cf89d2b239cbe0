"""Classification by sentiment, in five classes: a linear layer on the vectors of a BERT that is not trained.

Source: CS224N, default final project (minBERT), part 1, in its mode `pretrain`.
Cost: 5 minutes on two CPU cores without bfloat16 instructions, 1.5 with them, from all-MiniLM-L6-v2.
Expect: 42% accuracy on the development set.
Command: jaxnlp train bert_sst_frozen --workdir runs/bert_sst_frozen
"""

from configs import bert_sst
from train.config import TrainConfig, update


def get_config() -> TrainConfig:
    return update(
        bert_sst.get_config(),
        recipe="bert_sst_frozen",
        **{
            "optimizer.frozen": ("encoder",),
            "model.encoder.dropout_rate": 0.0,
            "model.encoder.attention_dropout_rate": 0.0,
            "model.token_dropout_rate": 0.0,
            "task.label_smoothing": 0.0,
            "ema_decay": None,
            "optimizer.learning_rate": 2e-3,
            "total_steps": 1068,  # four epochs
            "evaluate_every_steps": 267,
            "checkpoint_every_steps": 534,
        },
    )
