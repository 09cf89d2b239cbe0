"""One encoder for sentiment, paraphrases and semantic textual similarity: a small pretrained BERT for three tasks.

Source: CS224N, default final project (minBERT), part 2. Each batch is of one task, drawn in proportion to its size at
first, and less so later (Stickland and Murray 2019).
Differs: the encoder is a sentence encoder of six layers; similarity is the cosine of mean vectors (Reimers and Gurevych
2019); without Quora's large training file, 16,000 rows of its dev file are for training, and the other 4,212 for
validation.
Cost: 21 minutes on one CPU core with AMX, from all-MiniLM-L6-v2; about 100 on one without bfloat16 instructions.
Expect: 49.3% accuracy on SST, 83.5% on Quora, and a Pearson correlation of 0.876 on STS, each on the development set.
Pairs of Quora were in the encoder's training.
Command: jaxnlp train bert_multitask --workdir runs/bert_multitask
"""

from configs import bert_classify
from data.text_table import TextTable
from train.config import TrainConfig, update


def get_config() -> TrainConfig:
    return update(
        bert_classify.get_config(),
        recipe="bert_multitask",
        data=TextTable(
            parts=("sst", "quora", "sts"),
            pairs="apart",
            batch_size=32,
            schedule="annealed",
            schedule_steps=800,  # with 16,000 rows, Quora has half of the first batches and 37% after these steps
        ),
        **{
            "model.similarity": "cosine",
            "model.pair_layer": "separate",
            "model.cosine_logit": (10.8, 0.82),  # a logistic regression on 2,000 training rows
            "task.label_smoothing": 0.0,
            "task.part_label_smoothing": (0.1, 0.0, 0.0),
            "task.part_weights": (1.0, 1.0, 10.0),  # the gradient of a squared error is about a tenth of the others
            "best_metric": "mean_score",
            "total_steps": 3000,
            "evaluate_every_steps": 500,
            "checkpoint_every_steps": 250,
        },
    )
