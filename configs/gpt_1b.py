"""GPT of 1.3 billion parameters, on texts of your own, in tokens of byte-level BPE.

Source: Brown et al. 2020, table 2.1, GPT-3 XL: 24 layers, width 2,048, heads of width 128, context 2,048, learning rate
2e-4, AdamW with beta2 0.95 and weight decay 0.1.
Differs: 16 heads, since 24 of width 128 are not the width of the model; every layer attends to all earlier tokens; the
batch is 64 windows, and the paper's is 512. --data.batch-size 512 --accumulation-steps 8 is the paper's.
Cost: for eight GPUs with 80 GB, or 16 TPUs with 16 GB: see docs/scaling_costs.md. A token costs about 10 GFLOP.
Expect: depends on the text. It is compiled for these devices; nobody has trained it.
Command: jaxnlp train gpt_1b --parallel fsdp --data.path texts/ --workdir runs/gpt_1b
"""

from data.byte_pair_text import BytePairText
from jaxnlp.models.gpt import GPTConfig
from jaxnlp.nn.compute import TransformerCompute
from jaxnlp.tasks.language_model import LanguageModel
from train.config import TrainConfig
from train.optimizer import AdamW
from train.optimizer.schedules import Cosine


def get_config() -> TrainConfig:
    return TrainConfig(
        recipe="gpt_1b",
        data=BytePairText(source="text_file", batch_size=64, sequence_length=2048, evaluation_batch_size=64),
        model=GPTConfig(
            num_layers=24,
            num_heads=16,
            width=2048,
            context_length=2048,
            tie_embeddings=True,
            compute=TransformerCompute(scan_layers=True, remat=True),
        ),
        task=LanguageModel(sample_prompt="\n", sample_tokens=200),
        optimizer=AdamW(
            learning_rate=2e-4,
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
