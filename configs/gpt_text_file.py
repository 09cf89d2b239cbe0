"""Character GPT on texts of your own: any UTF-8 file, several files, a folder of .txt files, or a pattern.

Source: the model of karpathy/minGPT at a size for a laptop.
Cost: minutes on two CPU cores; --total-steps sets it.
Expect: depends on the text; from 100,000 characters on, words and lines form. The last tenth of each file is held out.
Command: jaxnlp train gpt_text_file --data.path my.txt --workdir runs/my_text
"""

from data.character_text import CharacterText
from jaxnlp.models.gpt import GPTConfig
from jaxnlp.tasks.language_model import LanguageModel
from train.config import TrainConfig
from train.optimizer import AdamW
from train.optimizer.schedules import Cosine


def get_config() -> TrainConfig:
    return TrainConfig(
        recipe="gpt_text_file",
        data=CharacterText(source="text_file", batch_size=16, sequence_length=128),
        model=GPTConfig(
            num_layers=4,
            num_heads=4,
            width=192,
            context_length=128,
            embedding_dropout_rate=0.1,
            attention_dropout_rate=0.1,
            residual_dropout_rate=0.1,
        ),
        task=LanguageModel(sample_prompt="\n", sample_tokens=300),
        optimizer=AdamW(
            learning_rate=2e-3, beta2=0.99, weight_decay=0.1, schedule=Cosine(warmup=50, min_lr_ratio=0.05)
        ),
        total_steps=2000,
        evaluate_every_steps=250,
        checkpoint_every_steps=250,
    )
