"""Birth places: names_finetune with a Synthesizer, after names_pretrain_synthesizer or without pretraining.

Source: CS224N assignment 5 for task and model. Differs: see docs/names.md.
Cost: two and a half minutes on one CPU core without bfloat16 instructions.
Expect: see docs/results/names_finetune-synthesizer.json.
Command: jaxnlp train names_finetune_synthesizer --init-from runs/names_pretrain_synthesizer
  --workdir runs/names_finetune_synthesizer
"""

import dataclasses

from configs import names_finetune, names_pretrain_synthesizer
from train.config import TrainConfig


def get_config() -> TrainConfig:
    return dataclasses.replace(
        names_finetune.get_config(),
        recipe="names_finetune_synthesizer",
        model=names_pretrain_synthesizer.get_config().model,
    )
