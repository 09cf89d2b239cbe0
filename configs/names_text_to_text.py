"""Birth places as text to text: an encoder-decoder reads a question, or the beginning of a fact, and writes the rest.

Source: Roberts et al. 2020 (closed-book T5); Guu et al. 2020 for facts that are names and numbers. Data: CS224N,
assignment 5. The answers about most people are only in the documents.
Cost: 25 minutes on one CPU core of a busy machine with bfloat16 instructions.
Expect: 79.9% accuracy on the 500 questions of the development set (76.8% to 81.8%); see docs/translation.md.
Command: jaxnlp train names_text_to_text --workdir runs/names_text_to_text
"""

from data.names_text_to_text import NamesTextToText
from jaxnlp.models.encoder_decoder import EncoderDecoderConfig
from jaxnlp.tasks.translation import Translation
from train.config import TrainConfig
from train.optimizer import Muon
from train.optimizer.schedules import Cosine


def get_config() -> TrainConfig:
    return TrainConfig(
        recipe="names_text_to_text",
        data=NamesTextToText(batch_size=512, batch_tokens=4_096),
        model=EncoderDecoderConfig(
            num_layers=3, num_heads=4, width=256, context_length=64, embeddings="shared", dropout_rate=0.1
        ),
        task=Translation(label_smoothing=0.0),
        optimizer=Muon(
            learning_rate=3e-3, beta2=0.99, weight_decay=0.1, schedule=Cosine(warmup=100, min_lr_ratio=0.02)
        ),
        best_metric="exact_match",
        total_steps=1_600,
        evaluate_every_steps=200,
        checkpoint_every_steps=200,
    )
