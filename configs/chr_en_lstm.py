"""Translation from Cherokee to English by the LSTM with attention of CS224N's assignment 4.

Source: CS224N, assignment 4, with its SentencePiece models; its widths, dropout and learning rate are
larger. Data: Zhang, Frey and Bansal 2020.
Cost: 24 minutes on one busy CPU core with bfloat16 instructions.
Expect: BLEU 15.8 on the development set with 5 beams and a length penalty of 0.6, the mean of three seeds.
Command: jaxnlp train chr_en_lstm --workdir runs/chr_en_lstm
"""

from data.translation import ParallelText
from jaxnlp.models.attention_lstm import AttentionLSTMConfig
from jaxnlp.tasks.translation import Translation
from train.config import TrainConfig
from train.optimizer import Muon
from train.optimizer.schedules import Cosine


def get_config() -> TrainConfig:
    return TrainConfig(
        recipe="chr_en_lstm",
        data=ParallelText(
            data_set="cs224n_a4_chr_en",
            train=("train.chr.gz", "train.en"),
            validation=("dev.chr", "dev.en"),
            sentencepiece=("src.model", "tgt.model"),
            batch_size=256,
            batch_tokens=4_096,
            lengths=(12, 16, 24, 32, 48, 64, 96, 128),
        ),
        model=AttentionLSTMConfig(
            embedding_width=256,
            width=256,
            embedding_dropout_rate=0.2,
            dropout_rate=0.4,
        ),
        task=Translation(label_smoothing=0.1),
        optimizer=Muon(
            learning_rate=5e-3, beta2=0.98, weight_decay=0.1, schedule=Cosine(warmup=100, min_lr_ratio=0.02)
        ),
        ema_decay=0.998,
        best_metric="bleu",
        total_steps=2_500,
        evaluate_every_steps=500,
        checkpoint_every_steps=500,
        log_every_steps=50,
    )
