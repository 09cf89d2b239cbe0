"""Parts of speech of UD English EWT by BiLSTM-CRF with a character CNN: the tags that a dependency parser reads.

Source: Ma and Hovy 2016. Differs: Universal POS tags, no pretrained vectors, AdamW.
Cost: 10 minutes on two CPU cores.
Expect: accuracy of dev 0.94.
Command: python -m train ud_tagger --workdir runs/ud_tagger
"""

from data.tagged_sentences import TaggedSentences
from jaxnlp.models.tagger import TaggerConfig
from jaxnlp.nn.compute import Compute
from jaxnlp.tasks.tagging import Tagging
from train.config import TrainConfig
from train.optimizer import OptimizerConfig


def get_config() -> TrainConfig:
    return TrainConfig(
        recipe="ud_tagger",
        data=TaggedSentences(source="ud_en_ewt", batch_size=32),
        model=TaggerConfig(
            word_width=100,
            character_features=60,
            recurrent_widths=(200,),
            word_dropout_rate=0.1,
            compute=Compute(matmul_dtype="auto"),
        ),
        task=Tagging(),
        optimizer=OptimizerConfig(
            name="adamw", learning_rate=2e-3, weight_decay=0.01, warmup_steps=200, min_lr_ratio=0.02
        ),
        ema_decay=0.998,
        best_metric="accuracy",
        total_steps=3_000,
        evaluate_every_steps=500,
        checkpoint_every_steps=500,
    )
