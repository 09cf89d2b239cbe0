"""Sentiment in five steps, by a small pretrained BERT.

Source: CS224N, default final project (minBERT), part 1: a dropout and a linear layer on the encoder, which
is fine-tuned; bert_sst_frozen leaves it as it is.
Differs: a fifth of the tokens is hidden in training, classes are asked for with less certainty, and the parameters'
moving average is what counts: 8,544 sentences are soon learnt by heart.
Cost: 12 minutes on two CPU cores without bfloat16 instructions, from all-MiniLM-L6-v2.
Expect: 49.95% of dev right.
Command: python -m train bert_sst --workdir runs/bert_sst
"""

from data.minbert import MinBertData
from jaxnlp.models.bert import BertConfig
from jaxnlp.models.text_tasks import TextTasksConfig
from train.config import TrainConfig
from train.objectives import LossConfig
from train.optimizer import OptimizerConfig


def get_config() -> TrainConfig:
    return TrainConfig(
        recipe="bert_sst",
        data=MinBertData(parts=("sst",), batch_size=32),
        model=TextTasksConfig(
            pretrained="sentence-transformers/all-MiniLM-L6-v2",
            encoder=BertConfig(matmul_dtype="auto"),
            tasks=("sst",),
            pooling="mean",
            token_dropout_rate=0.2,
        ),
        objective="text_tasks",
        loss=LossConfig(label_smoothing=0.1),
        optimizer=OptimizerConfig(
            name="adamw", learning_rate=1e-4, weight_decay=0.01, warmup_steps=100, final_fraction=0.0
        ),
        ema_decay=0.99,
        best_by="mean_score",
        total_steps=801,  # three epochs
        evaluate_every_steps=133,
        checkpoint_every_steps=267,
    )
