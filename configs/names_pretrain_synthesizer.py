"""Birth places: names_pretrain with a Synthesizer instead of the GPT.

Source: CS224N assignment 5 for task and model. Differs: as names_pretrain, with attention weights computed without dot
products.
Cost: 92 minutes on one CPU core without bfloat16 instructions.
Expect: see docs/results/names_pretrain-synthesizer.json.
Command: jaxnlp train names_pretrain_synthesizer --workdir runs/names_pretrain_synthesizer
"""

import dataclasses

from configs import names_pretrain
from jaxnlp.models.synthesizer import SynthesizerConfig
from train.config import TrainConfig


def get_config() -> TrainConfig:
    return dataclasses.replace(
        names_pretrain.get_config(),
        recipe="names_pretrain_synthesizer",
        model=SynthesizerConfig(num_layers=4, num_heads=8, width=256, context_length=128),
    )
