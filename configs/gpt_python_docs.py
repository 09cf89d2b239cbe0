"""Character GPT on the language reference in every Python installation: the demo, without a download.

Source: the model of karpathy/minGPT at a size for two CPU cores; the text is `pydoc_data.topics`. Differs: Muon, which
needs fewer steps than AdamW.
Cost: 40 to 90 seconds of training on two CPU cores, the latter without bfloat16 instructions.
Expect: validation loss near 1.39 nats per character, and samples that look like English. The text and the number
differ a little between Python versions.
Command: jaxnlp train gpt_python_docs --workdir runs/gpt_python_docs
"""

from data.character_text import CharacterText
from jaxnlp.models.gpt import GPTConfig
from jaxnlp.tasks.language_model import LanguageModel
from train.config import TrainConfig
from train.optimizer import Muon
from train.optimizer.schedules import Cosine


def get_config() -> TrainConfig:
    return TrainConfig(
        recipe="gpt_python_docs",
        data=CharacterText(source="python_docs", batch_size=8, sequence_length=128),
        model=GPTConfig(num_layers=4, num_heads=4, width=128, context_length=128),
        task=LanguageModel(sample_prompt="The ", sample_tokens=300),
        optimizer=Muon(learning_rate=6e-3, beta2=0.99, weight_decay=0.1, schedule=Cosine(warmup=50, min_lr_ratio=0.05)),
        total_steps=660,
        evaluate_every_steps=220,
        checkpoint_every_steps=220,
    )
