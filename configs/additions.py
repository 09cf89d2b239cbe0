"""Additions of two numbers of up to two digits, by a small character GPT that has never seen the held-out pairs.

Source: karpathy/minGPT, projects/adder. Differs: see data/additions.py; three layers of width 96.
Cost: 11 to 29 minutes on two busy CPU cores.
Expect: 99% to 100% of the test sums right.
Command: jaxnlp train additions --workdir runs/additions
"""

from data.additions import Additions
from jaxnlp.models.gpt import GPTConfig
from jaxnlp.tasks.question_answering import QuestionAnswering
from train.config import TrainConfig
from train.optimizer import AdamW
from train.optimizer.schedules import Cosine


def get_config() -> TrainConfig:
    return TrainConfig(
        recipe="additions",
        data=Additions(batch_size=128),
        model=GPTConfig(num_layers=3, num_heads=4, width=96, context_length=16, use_bias=False),
        task=QuestionAnswering(),
        optimizer=AdamW(
            learning_rate=2e-3,
            beta2=0.99,
            weight_decay=0.1,
            max_grad_norm=1.0,
            schedule=Cosine(warmup=100, min_lr_ratio=0.0),
        ),
        best_metric="exact_match",
        total_steps=6_000,
        evaluate_every_steps=1_000,
        checkpoint_every_steps=1_000,
    )
