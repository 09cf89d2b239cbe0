"""GPT that reads images as sequences of pixels: scikit-learn's digits by default, without a download.

Source: karpathy/minGPT, play_image; Chen et al. 2020 (Image GPT). Differs: the first pixel is predicted, too.
Cost: 1 minute on one core, 9 on one of a busy machine.
Expect: 1.299 nats per pixel of the 359 held-out digits, the mean of three seeds.
Command: jaxnlp train gpt_play_image --workdir runs/gpt_play_image
"""

from data.image_pixels import ImagePixels
from jaxnlp.models.gpt import GPTConfig
from jaxnlp.tasks.image_language_model import ImageLanguageModel
from train.config import TrainConfig
from train.optimizer import AdamW
from train.optimizer.schedules import Cosine


def get_config() -> TrainConfig:
    return TrainConfig(
        recipe="gpt_play_image",
        data=ImagePixels(source="digits", batch_size=64),
        model=GPTConfig(
            num_layers=4,
            num_heads=4,
            width=64,
            context_length=64,
            embedding_dropout_rate=0.1,
            attention_dropout_rate=0.1,
            residual_dropout_rate=0.1,
        ),
        task=ImageLanguageModel(),
        optimizer=AdamW(
            learning_rate=3e-3,
            beta2=0.95,
            weight_decay=0.1,
            max_grad_norm=1.0,
            schedule=Cosine(warmup=50, min_lr_ratio=0.0),
        ),
        total_steps=1_000,
        evaluate_every_steps=250,
        checkpoint_every_steps=250,
    )
