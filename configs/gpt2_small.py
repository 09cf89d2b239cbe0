"""GPT-2 small, 124 million parameters, on texts of your own, in tokens of byte-level BPE.

Source: Radford et al. 2019, and the settings of karpathy/nanoGPT, config/train_gpt2.py: 12 layers, 12 heads, width 768,
context 1,024, AdamW with learning rate 6e-4.
Differs: the batch is 16 windows; nanoGPT sums 480 windows of eight GPUs. --accumulation-steps makes it larger.
Cost: for one GPU with 16 GB or more; nobody has trained it on one yet. A token costs about 0.86 GFLOP.
Expect: depends on the text. The model overfits a text with fewer tokens than it has parameters.
Command: jaxnlp train gpt2_small --data.path texts/ --workdir runs/gpt2_small
"""

from data.byte_pair_text import BytePairText
from jaxnlp.models.gpt import GPTConfig
from jaxnlp.tasks.language_model import LanguageModel
from train.config import TrainConfig
from train.optimizer import AdamW
from train.optimizer.schedules import Cosine


def get_config() -> TrainConfig:
    return TrainConfig(
        recipe="gpt2_small",
        data=BytePairText(source="text_file", batch_size=16, sequence_length=1024, evaluation_batch_size=16),
        model=GPTConfig(num_layers=12, num_heads=12, width=768, context_length=1024, tie_embeddings=True),
        task=LanguageModel(sample_prompt="\n", sample_tokens=200),
        optimizer=AdamW(
            learning_rate=6e-4,
            beta2=0.95,
            weight_decay=0.1,
            max_grad_norm=1.0,
            schedule=Cosine(warmup=700, min_lr_ratio=0.1),
        ),
        total_steps=20_000,
        evaluate_every_steps=1_000,
        checkpoint_every_steps=1_000,
        log_every_steps=50,
    )
