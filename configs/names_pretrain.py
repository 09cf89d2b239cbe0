"""Birth places: pretraining for the recall of facts.

Source: CS224N assignment 5 for task and model. Differs, see docs/names.md: the model predicts names, numbers and places
(Guu et al. 2020) after at most a few words of their context, in a random order; training questions are included
(Allen-Zhu and Li 2023); names occur at any position; Muon.
Cost: 10 minutes on two CPU cores with bfloat16 instructions, 30 without.
Expect: see docs/results/names_pretrain.json.
Command: jaxnlp train names_pretrain --workdir runs/names_pretrain
"""

from data.names import NamesPretraining
from jaxnlp.models.gpt import GPTConfig
from jaxnlp.tasks.question_answering import QuestionAnswering
from train.config import TrainConfig
from train.optimizer import Muon
from train.optimizer.schedules import Cosine


def get_config() -> TrainConfig:
    return TrainConfig(
        recipe="names_pretrain",
        data=NamesPretraining(
            corruption="facts",
            place_fraction=0.9,
            question_fraction=0.15,
            facts_length=56,
            max_left_padding=12,
            batch_size=64,
        ),
        model=GPTConfig(num_layers=4, num_heads=8, width=256, context_length=128),
        task=QuestionAnswering(),
        optimizer=Muon(
            learning_rate=3e-3, beta2=0.99, weight_decay=0.1, schedule=Cosine(warmup=100, min_lr_ratio=0.02)
        ),
        best_metric="exact_match",
        total_steps=2800,
        evaluate_every_steps=400,
        checkpoint_every_steps=400,
    )
