"""Birth places as text to text: pretraining by span corruption of Wikipedia sentences.

Source: Raffel et al. 2020 (T5), section 3.3; Roberts et al. 2020 for closed-book questions. Data: CS224N,
assignment 5.
Cost: 12 minutes on two busy CPU cores with bfloat16 instructions.
Expect: 3.01 nats per token of removed spans, on 33 held-out sentences.
Command: jaxnlp train names_span_corruption --workdir runs/names_span_corruption
"""

from data.span_corruption import CorruptedText
from jaxnlp.models.encoder_decoder import EncoderDecoderConfig
from jaxnlp.tasks.text_to_text import TextToText
from train.config import TrainConfig
from train.optimizer import Muon
from train.optimizer.schedules import Cosine


def get_config() -> TrainConfig:
    return TrainConfig(
        recipe="names_span_corruption",
        data=CorruptedText(
            data_set="cs224n_a5_names",
            files=("wiki.txt",),
            vocabulary_size=4_000,
            lengths=(16, 32, 48, 64),
            validation_fraction=0.01,
        ),
        model=EncoderDecoderConfig(
            num_layers=3,
            num_heads=4,
            width=192,
            feed_forward_width=512,
            context_length=64,
            embeddings="shared",
            dropout_rate=0.1,
        ),
        task=TextToText(),
        optimizer=Muon(
            learning_rate=5e-3, beta2=0.98, weight_decay=0.1, schedule=Cosine(warmup=100, min_lr_ratio=0.02)
        ),
        total_steps=1_500,
        evaluate_every_steps=500,
        checkpoint_every_steps=500,
        log_every_steps=50,
    )
