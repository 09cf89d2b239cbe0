"""Character GPT on Tiny Shakespeare, at the size for one GPU.

Source: karpathy/nanoGPT, config/train_shakespeare_char.py: 6 layers, 6 heads, width 384, context 256, batch 64, 5,000
steps, dropout 0.2; best validation loss 1.4697 in 3 minutes on an A100.
Differs: the loss is over the whole validation split, not over random windows of it.
Cost: not measured on a GPU; about five hours on two CPU cores.
Expect: not measured yet; nanoGPT has 1.4697.
Command: jaxnlp train gpt_shakespeare --workdir runs/gpt_shakespeare
"""

from data.character_text import CharacterText
from jaxnlp.models.gpt import GPTConfig
from jaxnlp.tasks.language_model import LanguageModel
from train.config import TrainConfig
from train.optimizer import AdamW
from train.optimizer.schedules import Cosine


def get_config() -> TrainConfig:
    return TrainConfig(
        recipe="gpt_shakespeare",
        data=CharacterText(source="tiny_shakespeare", batch_size=64, sequence_length=256),
        model=GPTConfig(
            num_layers=6,
            num_heads=6,
            width=384,
            context_length=256,
            embedding_dropout_rate=0.2,
            attention_dropout_rate=0.2,
            residual_dropout_rate=0.2,
            use_bias=False,
            tie_embeddings=True,
        ),
        task=LanguageModel(sample_prompt="\n", sample_tokens=500),
        optimizer=AdamW(
            learning_rate=1e-3,
            beta2=0.99,
            weight_decay=0.1,
            max_grad_norm=1.0,
            schedule=Cosine(warmup=100, min_lr_ratio=0.1),
        ),
        total_steps=5000,
        evaluate_every_steps=250,
        checkpoint_every_steps=250,
    )
