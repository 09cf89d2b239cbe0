"""Character GPT on Tiny Shakespeare, small enough for a laptop's CPU.

Source: karpathy/nanoGPT, README, "I only have a macbook": 4 layers, 4 heads, width 128, context 64, batch 12,
2,000 steps, no dropout, tied embeddings, no biases; validation loss 1.88 in about 3 minutes.
Differs: learning rate 4e-3, not 1e-3; the loss is over the whole validation split, not over random windows of it.
Cost: half a minute to a minute on two CPU cores.
Expect: validation loss 1.769, the mean of three seeds.
Command: jaxnlp train gpt_shakespeare_cpu --workdir runs/gpt_shakespeare_cpu
"""

from data.character_text import CharacterText
from jaxnlp.models.gpt import GPTConfig
from jaxnlp.tasks.language_model import LanguageModel
from train.config import TrainConfig
from train.optimizer import AdamW
from train.optimizer.schedules import Cosine


def get_config() -> TrainConfig:
    return TrainConfig(
        recipe="gpt_shakespeare_cpu",
        data=CharacterText(source="tiny_shakespeare", batch_size=12, sequence_length=64, evaluation_batch_size=96),
        model=GPTConfig(
            num_layers=4,
            num_heads=4,
            width=128,
            context_length=64,
            use_bias=False,
            tie_embeddings=True,
        ),
        task=LanguageModel(sample_prompt="\n"),
        optimizer=AdamW(
            learning_rate=4e-3,
            beta2=0.99,
            weight_decay=0.1,
            max_grad_norm=1.0,
            schedule=Cosine(warmup=100, min_lr_ratio=0.1),
        ),
        total_steps=2000,
        evaluate_every_steps=250,
        checkpoint_every_steps=250,
    )
