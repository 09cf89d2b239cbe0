"""Character GPT on the language reference that every Python carries: the demo, with nothing to download.

Source: the model of karpathy/minGPT at a size for two CPU cores; the text is `pydoc_data.topics`.
Cost: about two minutes on two CPU cores.
Expect: validation loss near 1.25 nats per character, and samples that are visibly English; the text differs a little
between Python versions, so the number does too.
Command: python -m train gpt_python_docs --workdir runs/gpt_python_docs
"""

from data.character_text import CharacterText
from jaxnlp.models.gpt import GPTConfig
from jaxnlp.nn.compute import Compute
from train.config import TrainConfig
from train.optimizer import OptimizerConfig


def get_config() -> TrainConfig:
    return TrainConfig(
        recipe="gpt_python_docs",
        data=CharacterText(source="python_docs", batch_size=8, sequence_length=128),
        model=GPTConfig(num_layers=4, num_heads=4, width=128, context_length=128, compute=Compute(matmul_dtype="auto")),
        objective="next_token",
        optimizer=OptimizerConfig(
            learning_rate=4e-3, beta2=0.99, weight_decay=0.1, warmup_steps=100, min_lr_ratio=0.05
        ),
        total_steps=3000,
        evaluate_every_steps=1000,
        checkpoint_every_steps=1000,
        sample_prompt="The ",
        sample_length_tokens=300,
    )
