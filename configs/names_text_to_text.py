"""Birth places as text to text: an encoder-decoder reads a question and writes the place.

Source: Roberts et al. 2020 (closed-book T5). Data: CS224N, assignment 5. The answer about a person is only in the
texts of names_span_corruption, so a model without pretraining can only guess.
Cost: 2 minutes on two busy CPU cores with bfloat16 instructions.
Expect: 9.0% accuracy on the 500 questions of the development set, 5.6% without pretraining; see docs/translation.md.
Command: jaxnlp train names_text_to_text --init-from runs/names_span_corruption --workdir runs/names_text_to_text
"""

from configs import names_span_corruption
from data.translation import ParallelText
from jaxnlp.tasks.translation import Translation
from train.config import TrainConfig
from train.optimizer import Muon
from train.optimizer.schedules import Cosine


def get_config() -> TrainConfig:
    return TrainConfig(
        recipe="names_text_to_text",
        data=ParallelText(
            data_set="cs224n_a5_names",
            train=("birth_places_train.tsv",),
            validation=("birth_dev.tsv",),
            batch_size=64,
            batch_tokens=2_048,
            lengths=(16, 32, 48, 64),
        ),
        model=names_span_corruption.get_config().model,
        task=Translation(label_smoothing=0.0),
        optimizer=Muon(learning_rate=2e-3, beta2=0.98, weight_decay=0.1, schedule=Cosine(warmup=20, min_lr_ratio=0.02)),
        best_metric="exact_match",
        total_steps=300,
        evaluate_every_steps=50,
        checkpoint_every_steps=50,
        log_every_steps=10,
    )
