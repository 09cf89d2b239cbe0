"""Birth places: names_finetune with a Perceiver, after names_pretrain_perceiver or without pretraining.

Source: CS224N assignment 5 for task and model. Differs: see docs/names.md.
Cost: a minute or two on two CPU cores.
Expect: see docs/results/names_finetune-perceiver.json.
Command: jaxnlp train names_finetune_perceiver --init-from runs/names_pretrain_perceiver
  --workdir runs/names_finetune_perceiver
"""

import dataclasses

from configs import names_finetune, names_pretrain_perceiver
from train.config import TrainConfig


def get_config() -> TrainConfig:
    return dataclasses.replace(
        names_finetune.get_config(),
        recipe="names_finetune_perceiver",
        model=names_pretrain_perceiver.get_config().model,
    )
