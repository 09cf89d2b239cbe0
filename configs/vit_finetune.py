"""ViT or DeiT of Transformers, trained further on your own images, a folder for each class.

The weights, the size of the images and their normalisation are those of --init-from: a folder that Transformers wrote,
or a name on the Hugging Face Hub. The head is initialised at random unless the classes are the same. A share of the
images is held out.
Source: Dosovitskiy et al. 2021, section 3.2; the learning rate is one that Transformers recommends for ViT and AdamW.
Cost: an image of 224 x 224 pixels costs about 105 GFLOP with the 86 million parameters of the default weights.
Expect: depends on the images.
Command: jaxnlp train vit_finetune --init-from FOLDER --data.path my_images --workdir runs/my_vit
"""

from data.images import Images
from jaxnlp.models.vit import ViTConfig
from jaxnlp.tasks.classification import Classification
from train.config import TrainConfig
from train.optimizer import AdamW
from train.optimizer.schedules import Cosine


def get_config() -> TrainConfig:
    return TrainConfig(
        recipe="vit_finetune",
        data=Images(source="files", batch_size=32, evaluation_batch_size=32, flip=True),
        model=ViTConfig(patch=16, num_layers=12, num_heads=12, width=768, epsilon=1e-12, dropout_rate=0.0),
        task=Classification(),
        optimizer=AdamW(
            learning_rate=5e-5, weight_decay=0.01, max_grad_norm=1.0, schedule=Cosine(warmup=20, min_lr_ratio=0.0)
        ),
        init_from="google/vit-base-patch16-224",
        best_metric="accuracy",
        total_steps=400,
        evaluate_every_steps=100,
        checkpoint_every_steps=100,
        log_every_steps=20,
    )
