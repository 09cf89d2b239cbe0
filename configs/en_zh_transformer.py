"""Translation from English to Chinese by a small Transformer, for short sentences of daily speech.

Source: Vaswani et al. 2017, small and pre-norm; Provilkov et al. 2020 for BPE dropout; the average of the
parameters is evaluated. Data: the English-Chinese pairs of CMU 11-785, from the Tatoeba Project.
Cost: 11 minutes on two busy CPU cores with bfloat16 instructions.
Expect: validation BLEU 36.3 by greedy decoding, 37.6 with 5 beams, by sacrebleu's tokenizer zh.
Command: jaxnlp train en_zh_transformer --workdir runs/en_zh_transformer
"""

from data.translation import ParallelText
from jaxnlp.models.encoder_decoder import EncoderDecoderConfig
from jaxnlp.tasks.translation import Translation
from train.config import TrainConfig
from train.optimizer import Muon
from train.optimizer.schedules import Cosine


def get_config() -> TrainConfig:
    return TrainConfig(
        recipe="en_zh_transformer",
        data=ParallelText(
            data_set="cmu11785_en_zh",
            train=("train.txt",),
            validation=("val.txt",),
            vocabulary_size=4_000,
            shared_vocabulary=False,
            bpe_dropout=0.1,
            batch_size=512,
            batch_tokens=4_096,
            lengths=(8, 12, 16, 24, 48),
        ),
        model=EncoderDecoderConfig(
            num_layers=4,
            num_heads=4,
            width=192,
            feed_forward_width=512,
            context_length=128,
            embeddings="tied",
            dropout_rate=0.2,
        ),
        task=Translation(label_smoothing=0.1, bleu_tokenizer="zh"),
        optimizer=Muon(
            learning_rate=8e-3, beta2=0.98, weight_decay=0.1, schedule=Cosine(warmup=100, min_lr_ratio=0.02)
        ),
        ema_decay=0.998,
        best_metric="bleu",
        total_steps=1_500,
        evaluate_every_steps=500,
        checkpoint_every_steps=500,
        log_every_steps=50,
    )
