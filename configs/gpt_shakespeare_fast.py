"""Character GPT on Tiny Shakespeare: the lowest validation loss in five minutes on two CPU cores.

Source: the model of gpt_shakespeare_cpu with twice the context; a learning rate that falls to zero. Results of five
minutes each: width 192, 4,400 steps: 1.619; the same with dropout 0.1: 1.633; width 128, 9,000 steps: 1.539. The
smaller model sees twice as many tokens.
Cost: four to seven minutes on two CPU cores.
Expect: see docs/results/gpt_shakespeare_fast.json.
Command: jaxnlp train gpt_shakespeare_fast --workdir runs/gpt_shakespeare_fast
"""

from data.character_text import CharacterText
from jaxnlp.models.gpt import GPTConfig
from jaxnlp.tasks.language_model import LanguageModel
from train.config import TrainConfig
from train.optimizer import AdamW
from train.optimizer.schedules import Cosine


def get_config() -> TrainConfig:
    return TrainConfig(
        recipe="gpt_shakespeare_fast",
        data=CharacterText(source="tiny_shakespeare", batch_size=8, sequence_length=128),
        model=GPTConfig(
            num_layers=4,
            num_heads=4,
            width=128,
            context_length=128,
            use_bias=False,
            tie_embeddings=True,
        ),
        task=LanguageModel(sample_prompt="\n"),
        optimizer=AdamW(
            learning_rate=4e-3,
            beta2=0.99,
            weight_decay=0.1,
            max_grad_norm=1.0,
            schedule=Cosine(warmup=100, min_lr_ratio=0.0),
        ),
        total_steps=7800,
        evaluate_every_steps=1560,
        checkpoint_every_steps=1560,
    )
