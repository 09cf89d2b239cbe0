"""Classification of CIFAR-10's images by a small Vision Transformer, trained from scratch.

Source: Dosovitskiy et al. 2021 for the model; Xiao et al. 2021 for its convolutional stem; Zhang et al. 2018 for mixup.
Data: Krizhevsky 2009, without the 1,000 images that are held out.
Cost: 89 minutes on one busy CPU core with bfloat16 instructions.
Expect: 87.8% accuracy on the 1,000 held-out training images.
Command: jaxnlp train vit_cifar10 --workdir runs/vit_cifar10
"""

from data.images import Images
from jaxnlp.models.vit import ViTConfig
from jaxnlp.tasks.classification import Classification
from train.config import TrainConfig
from train.optimizer import Muon
from train.optimizer.schedules import Cosine


def get_config() -> TrainConfig:
    return TrainConfig(
        recipe="vit_cifar10",
        data=Images(source="cifar10", batch_size=128, flip=True, shift=4, mix="mixup", mix_alpha=0.2),
        model=ViTConfig(
            patch=4,
            num_layers=6,
            num_heads=4,
            width=192,
            feed_forward_width=384,
            stem="convolutional",
            pooling="mean",
            dropout_rate=0.0,
            layer_dropout_rate=0.05,
        ),
        task=Classification(label_smoothing=0.1),
        optimizer=Muon(learning_rate=3e-3, weight_decay=0.05, schedule=Cosine(warmup=200, min_lr_ratio=0.02)),
        ema_decay=0.998,
        best_metric="accuracy",
        total_steps=10_000,
        evaluate_every_steps=1_000,
        checkpoint_every_steps=1_000,
    )
