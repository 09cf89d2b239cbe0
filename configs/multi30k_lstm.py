"""Translation of captions of pictures (Multi30k) from English to German, by the LSTM with attention.

Source: Luong et al. 2015 in the form of CS224N, assignment 4; Provilkov et al. 2020 for BPE dropout; the average
of the parameters is evaluated. Data: Elliott et al. 2016, task 1.
Cost: 18 to 33 minutes on two busy CPU cores with bfloat16 instructions.
Expect: BLEU 40.1 on the validation split with 5 beams, 40.0 on test 2016, means of three seeds.
Command: jaxnlp train multi30k_lstm --workdir runs/multi30k_lstm
"""

from data.translation import ParallelText
from jaxnlp.models.attention_lstm import AttentionLSTMConfig
from jaxnlp.tasks.translation import Translation
from train.config import TrainConfig
from train.optimizer import Muon
from train.optimizer.schedules import Cosine


def get_config() -> TrainConfig:
    return TrainConfig(
        recipe="multi30k_lstm",
        data=ParallelText(
            data_set="multi30k_en_de",
            train=("train.en.gz", "train.de.gz"),
            validation=("val.en.gz", "val.de.gz"),
            test=("test_2016_flickr.en.gz", "test_2016_flickr.de.gz"),
            vocabulary_size=6_000,
            bpe_dropout=0.1,
            batch_size=256,
            batch_tokens=4_096,
            lengths=(8, 12, 16, 20, 24, 32, 48, 64),
        ),
        model=AttentionLSTMConfig(
            embedding_width=256,
            width=256,
            embeddings="shared",
            embedding_dropout_rate=0.2,
            dropout_rate=0.4,
        ),
        task=Translation(label_smoothing=0.1),
        optimizer=Muon(
            learning_rate=5e-3, beta2=0.98, weight_decay=0.1, schedule=Cosine(warmup=100, min_lr_ratio=0.02)
        ),
        ema_decay=0.998,
        best_metric="bleu",
        total_steps=3_000,
        evaluate_every_steps=500,
        checkpoint_every_steps=500,
        log_every_steps=50,
    )
