"""Classification of sentences by a convolutional network: film reviews (MR), or by option SST or TREC's questions.

--data.source sst2, sst5 and trec choose another data set. MR has no split: --data.fold N holds out another tenth, and
`jaxnlp sweep text_cnn --grid data.fold=0,1,2,3,4,5,6,7,8,9` cross-validates. The held-out rows are
scored once, at the end, and do not select a checkpoint.
Source: Kim 2014, CNN-rand. Differs: AdamW, a moving average of the parameters, and dropout of word vectors.
Cost: 1 to 2 minutes on two busy CPU cores.
Expect: MR 77.6%, SST-2 80.5%, SST-5 40.3%, TREC 88.9%; see docs/classification.md.
Command: jaxnlp train text_cnn --workdir runs/text_cnn
"""

from data.text_table import TextTable
from jaxnlp.models.text_cnn import TextCNNConfig
from jaxnlp.tasks.classification import Classification
from train.config import TrainConfig
from train.optimizer import AdamW
from train.optimizer.schedules import Cosine


def get_config() -> TrainConfig:
    return TrainConfig(
        recipe="text_cnn",
        data=TextTable(source="mr", tokens="words", vocabulary_size=20_000, minimum_count=1, batch_size=50),
        model=TextCNNConfig(embedding_width=300, feature_maps=100, dropout_rate=0.5, embedding_dropout_rate=0.5),
        task=Classification(),
        optimizer=AdamW(
            learning_rate=1e-3, weight_decay=0.1, head_max_norm=3.0, schedule=Cosine(warmup=50, min_lr_ratio=0.02)
        ),
        ema_decay=0.99,
        best_metric="accuracy",
        total_steps=1_000,
        evaluate_every_steps=1_000,
        checkpoint_every_steps=500,
    )
