"""Translation from Chinese to English by the LSTM with attention, for sentences of daily speech.

Source: CS224N, assignment 4 of 2023, whose data this is not; Luong et al. 2015; Provilkov et al. 2020 for BPE dropout;
the average of the parameters is evaluated. Data: the English-Chinese pairs of the Tatoeba Project, in the edition of
ManyThings.org. Held-out pairs share no sentence with training pairs, in either language.
Cost: 22 minutes on two busy CPU cores with bfloat16 instructions.
Expect: BLEU 29.1 on the held-out pairs by greedy decoding, 30.9 with 5 beams and a length penalty of 0.6; BLEU 1.1 on
the assignment's development set, whose sentences are long and of other subjects. All are means of three seeds.
Command: jaxnlp train zh_en_lstm --workdir runs/zh_en_lstm
"""

from data.translation import ParallelText
from jaxnlp.models.attention_lstm import AttentionLSTMConfig
from jaxnlp.tasks.translation import Translation
from train.config import TrainConfig
from train.optimizer import Muon
from train.optimizer.schedules import Cosine


def get_config() -> TrainConfig:
    return TrainConfig(
        recipe="zh_en_lstm",
        data=ParallelText(
            data_set="tatoeba_en_zh",
            train=("cmn.txt.gz",),
            separate_targets=True,
            reverse=True,
            vocabulary_size=4_000,
            shared_vocabulary=False,
            bpe_dropout=0.1,
            batch_size=256,
            batch_tokens=4_096,
            lengths=(8, 12, 16, 24, 48),
        ),
        model=AttentionLSTMConfig(embedding_width=256, width=256, embedding_dropout_rate=0.2, dropout_rate=0.4),
        task=Translation(label_smoothing=0.1),
        optimizer=Muon(
            learning_rate=5e-3, beta2=0.98, weight_decay=0.1, schedule=Cosine(warmup=100, min_lr_ratio=0.02)
        ),
        ema_decay=0.998,
        best_metric="bleu",
        total_steps=2_000,
        evaluate_every_steps=500,
        checkpoint_every_steps=500,
        log_every_steps=50,
    )
