"""Birth places: fine-tuning on the training questions, after names_pretrain or without pretraining.

Source: CS224N assignment 5 for the task. Differs: see docs/names.md.
Cost: a minute or two on two CPU cores.
Expect: see docs/results/names_finetune.json.
Command: jaxnlp train names_finetune --init-from runs/names_pretrain --workdir runs/names_finetune
"""

from configs import names_pretrain
from data.names import NamesQuestions
from jaxnlp.tasks.question_answering import QuestionAnswering
from train.config import TrainConfig
from train.optimizer import AdamW
from train.optimizer.schedules import Cosine


def get_config() -> TrainConfig:
    return TrainConfig(
        recipe="names_finetune",
        data=NamesQuestions(batch_size=64),
        model=names_pretrain.get_config().model,
        task=QuestionAnswering(),
        optimizer=AdamW(learning_rate=1e-4, beta2=0.99, weight_decay=0.1, schedule=Cosine(warmup=10, min_lr_ratio=0.1)),
        best_metric="exact_match",
        total_steps=84,
        evaluate_every_steps=28,
        checkpoint_every_steps=28,
        log_every_steps=7,
    )
