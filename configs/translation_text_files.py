"""Translation of your own pairs: two files whose lines belong together, or one with a tab in each line.

Source: Vaswani et al. 2017, small and pre-norm; Provilkov et al. 2020 for the dropout of BPE.
Cost: about an hour for 30,000 pairs of short sentences on two CPU cores.
Expect: what your pairs allow; the recipes of multi30k and chr_en are of this shape.
Command: python -m train translation_text_files --data.train SOURCES TARGETS --workdir runs/translation_text_files
"""

from data.translation import ParallelText
from jaxnlp.models.encoder_decoder import EncoderDecoderConfig
from jaxnlp.nn.compute import Compute
from jaxnlp.tasks.translation import Translation
from train.config import TrainConfig
from train.optimizer import OptimizerConfig


def get_config() -> TrainConfig:
    return TrainConfig(
        recipe="translation_text_files",
        data=ParallelText(
            bpe_dropout=0.1,
            batch_size=512,
            batch_tokens=4_096,
            lengths=(8, 12, 16, 24, 32, 48, 64, 96, 128),
        ),
        model=EncoderDecoderConfig(
            num_layers=4,
            num_heads=4,
            width=192,
            feed_forward_width=512,
            context_length=160,
            embeddings="shared",
            dropout_rate=0.3,
            compute=Compute(matmul_dtype="auto"),
        ),
        task=Translation(label_smoothing=0.1),
        optimizer=OptimizerConfig(learning_rate=3e-3, beta2=0.98, warmup_steps=1_000, schedule="noam"),
        ema_decay=0.999,
        best_metric="bleu",
        total_steps=8_000,
        evaluate_every_steps=1_000,
        checkpoint_every_steps=1_000,
        log_every_steps=50,
    )
