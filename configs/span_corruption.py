"""Text-to-text pretraining by span corruption of Multi30k's captions, English and German.

Source: Raffel et al. 2020 (T5), sections 3.1.4 and 3.3; the model is that of multi30k_transformer with sinusoidal
positions. That recipe may start from it: --init-from runs/span_corruption. Data: Elliott et al. 2016, task 1.
Cost: 28 minutes on one CPU core of a busy machine with bfloat16 instructions.
Expect: 1.61 nats per token of removed spans, on 1,159 held-out captions.
Command: jaxnlp train span_corruption --workdir runs/span_corruption
"""

from configs import multi30k_transformer
from data.span_corruption import CorruptedText
from jaxnlp.tasks.text_to_text import TextToText
from train.config import TrainConfig, update
from train.optimizer import AdamW
from train.optimizer.schedules import Cosine


def get_config() -> TrainConfig:
    return TrainConfig(
        recipe="span_corruption",
        data=CorruptedText(
            data_set="multi30k_en_de",
            files=("train.en.gz", "train.de.gz"),
            lengths=(8, 12, 16, 20, 24, 32, 48, 64),
        ),
        model=update(multi30k_transformer.get_config(), **{"model.positions": "sinusoidal"}).model,
        task=TextToText(),
        optimizer=AdamW(learning_rate=3e-3, beta2=0.98, schedule=Cosine(warmup=500, min_lr_ratio=0.1)),
        total_steps=4_000,
        evaluate_every_steps=500,
        checkpoint_every_steps=500,
        log_every_steps=50,
    )
