"""Named and nominal entities in Chinese Weibo posts, character by character, by BiLSTM-CRF without pretrained vectors.

The data is small (1,350 posts) and two thirds of its entities are nominal, such as "friend".
Source: Peng and Dredze 2015 for the data; Zhang and Yang 2018, the character baseline. Differs: random embeddings.
Cost: 1 minute on two CPU cores with bfloat16 instructions.
Expect: F1 of dev 0.41.
Command: python -m train weibo_tagger --workdir runs/weibo_tagger
"""

from data.tagged_sentences import TaggedSentences
from jaxnlp.models.tagger import TaggerConfig
from jaxnlp.nn.compute import Compute
from jaxnlp.tasks.tagging import Tagging
from train.config import TrainConfig
from train.optimizer import OptimizerConfig


def get_config() -> TrainConfig:
    return TrainConfig(
        recipe="weibo_tagger",
        data=TaggedSentences(
            source="weibo_ner_zh", max_characters=1, max_length=192, length_multiple=32, batch_size=16
        ),
        model=TaggerConfig(
            word_width=100,
            bigram_width=50,
            character_features=0,
            recurrent_widths=(128,),
            word_dropout_rate=0.1,
            compute=Compute(matmul_dtype="auto"),
        ),
        task=Tagging(),
        optimizer=OptimizerConfig(
            name="adamw", learning_rate=2e-3, weight_decay=0.01, warmup_steps=100, min_lr_ratio=0.02
        ),
        ema_decay=0.995,
        best_metric="f1",
        total_steps=1_500,
        evaluate_every_steps=250,
        checkpoint_every_steps=250,
    )
