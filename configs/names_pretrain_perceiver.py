"""Birth places: names_pretrain with a Perceiver instead of the GPT.

Source: CS224N assignment 5 for task and model. Differs: as names_pretrain, with 32 latents at the first positions.
With --model.latent-placement along the latents are spread over the whole context.
Cost: 17 minutes on two CPU cores, 26 with --model.latent-placement along.
Expect: see docs/results/names_pretrain-perceiver.json.
Command: jaxnlp train names_pretrain_perceiver --workdir runs/names_pretrain_perceiver
"""

import dataclasses

from configs import names_pretrain
from jaxnlp.models.perceiver import PerceiverConfig
from train.config import TrainConfig


def get_config() -> TrainConfig:
    return dataclasses.replace(
        names_pretrain.get_config(),
        recipe="names_pretrain_perceiver",
        model=PerceiverConfig(num_layers=4, num_heads=8, width=256, context_length=128),
    )
