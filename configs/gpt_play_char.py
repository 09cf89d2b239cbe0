"""Character GPT on Tiny Shakespeare at the size of minGPT's example, for one GPU.

Source: karpathy/minGPT, projects/chargpt, in its first size: 8 layers, 8 heads, width 512, context 128, dropout 0.1.
Differs: AdamW falls by a cosine; the loss is over the whole validation split.
Cost: not measured; it is meant for a GPU.
Expect: not measured.
Command: jaxnlp train gpt_play_char --workdir runs/gpt_play_char
"""

from data.character_text import CharacterText
from jaxnlp.models.gpt import GPTConfig
from jaxnlp.tasks.language_model import LanguageModel
from train.config import TrainConfig
from train.optimizer import AdamW
from train.optimizer.schedules import Cosine


def get_config() -> TrainConfig:
    return TrainConfig(
        recipe="gpt_play_char",
        data=CharacterText(source="tiny_shakespeare", batch_size=128, sequence_length=128),
        model=GPTConfig(
            num_layers=8,
            num_heads=8,
            width=512,
            context_length=128,
            embedding_dropout_rate=0.1,
            attention_dropout_rate=0.1,
            residual_dropout_rate=0.1,
        ),
        task=LanguageModel(sample_prompt="O God, O God!"),
        optimizer=AdamW(
            learning_rate=6e-4,
            beta2=0.95,
            weight_decay=0.1,
            max_grad_norm=1.0,
            schedule=Cosine(warmup=100, min_lr_ratio=0.1),
        ),
        total_steps=2_000,
        evaluate_every_steps=250,
        checkpoint_every_steps=250,
    )
