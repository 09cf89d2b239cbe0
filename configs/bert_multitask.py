"""One encoder for sentiment, paraphrases and likeness of sentences: a small pretrained BERT with three heads.

Source: CS224N, default final project (minBERT), part 2. Each batch is of one task, in turn.
Differs: the encoder is a sentence encoder of six layers; likeness is the cosine of mean vectors (Reimers and Gurevych
2019); where Quora's large training file is not there, 16,000 rows of its dev file are for training, and the other 4,212
for scores.
Cost: not measured yet.
Expect: not measured to the end yet.
Command: python -m train bert_multitask --workdir runs/bert_multitask
"""

from configs import bert_sst
from train.config import TrainConfig, update

TASKS = ("sst", "quora", "sts")


def get_config() -> TrainConfig:
    return update(
        bert_sst.get_config(),
        recipe="bert_multitask",
        **{
            "data.tasks": TASKS,
            "data.schedule": "round_robin",
            "data.schedule_steps": 500,  # of the other schedules: sequential has each task once
            "model.tasks": TASKS,
            "model.relation": "separate",
            "model.token_dropout_rate": 0.1,
            "total_steps": 1500,
            "evaluate_every_steps": 500,
            "checkpoint_every_steps": 250,
        },
    )
