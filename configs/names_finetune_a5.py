"""Birth places: fine-tuning with the hyperparameters of the assignment.

Source: CS224N assignment 5: batch 256, learning rate 6e-4 with the warm-up and decay of minGPT; 10 epochs after
pretraining, 75 without (--total-steps 586).
Cost: one minute on two CPU cores; without pretraining, five.
Expect: about 2% without pretraining; published after pretraining: see names_pretrain_a5.
No questions are held out, so the validation split is the dev split. Report the last checkpoint (jaxnlp evaluate ...
--checkpoint latest), like the assignment, not the best one on dev.
Command: jaxnlp train names_finetune_a5 --init-from runs/names_pretrain_a5 --workdir runs/names_finetune_a5
"""

import dataclasses

from configs import names_pretrain_a5
from data.names import NamesQuestions
from jaxnlp.tasks.question_answering import QuestionAnswering
from train.config import TrainConfig

QUESTIONS, EPOCHS, BATCH = 2000, 10, 256


def get_config() -> TrainConfig:
    return TrainConfig(
        recipe="names_finetune_a5",
        data=NamesQuestions(batch_size=BATCH, sequence_length=names_pretrain_a5.BLOCK, held_out=0),
        model=names_pretrain_a5.assignment_model(),
        task=QuestionAnswering(),
        # Except for the learning rate, fine-tuning has the hyperparameters of pretraining.
        optimizer=dataclasses.replace(names_pretrain_a5.get_config().optimizer, learning_rate=6e-4),
        total_steps=EPOCHS * QUESTIONS // BATCH,
        evaluate_every_steps=20,
        checkpoint_every_steps=20,
        log_every_steps=5,
    )
