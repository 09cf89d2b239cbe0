"""Birth places: fine-tuning with the hyperparameters of the assignment.

Source: CS224N assignment 5: batch 256, learning rate 6e-4 with the warm-up and decay of minGPT; 10 epochs after
pretraining, 75 without (--total-steps 586).
Cost: one minute on two CPU cores; without pretraining, five.
Expect: about 2% without pretraining; published after pretraining: see names_pretrain_a5.
Command: python -m train names_finetune_a5 --init-from runs/names_pretrain_a5 --workdir runs/names_finetune_a5
"""

from configs.names_pretrain_a5 import BLOCK, DOCUMENTS, assignment_model
from data.names import NamesQuestions
from train.config import TrainConfig
from train.optimizer import OptimizerConfig

QUESTIONS, EPOCHS, BATCH = 2000, 10, 256


def get_config() -> TrainConfig:
    return TrainConfig(
        recipe="names_finetune_a5",
        data=NamesQuestions(batch_size=BATCH, sequence_length=BLOCK, held_out=0),
        model=assignment_model(),
        optimizer=OptimizerConfig(
            learning_rate=6e-4,
            beta2=0.95,
            weight_decay=0.1,
            clip_norm=1.0,
            warmup_tokens=512 * 20,
            final_tokens=200 * DOCUMENTS * BLOCK,
            final_fraction=0.1,
        ),
        total_steps=EPOCHS * QUESTIONS // BATCH,
        evaluate_every_steps=20,
        checkpoint_every_steps=20,
        log_every_steps=5,
    )
