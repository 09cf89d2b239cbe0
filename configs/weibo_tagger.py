"""Named and nominal entities in Chinese Weibo posts, character by character, by BiLSTM-CRF without pretrained vectors.

The data is small (1,350 posts) and two thirds of its entities are nominal, such as "friend".
Source: Peng and Dredze 2015 for the data; Zhang and Yang 2018, the character baseline. Differs: random embeddings.
Cost: 3 minutes on one core of a busy machine with bfloat16 instructions.
Expect: F1 of 0.52 to 0.56 on the development set, which has only 389 entities.
Command: jaxnlp train weibo_tagger --workdir runs/weibo_tagger
"""

from configs import resume_tagger
from train.config import TrainConfig, update


def get_config() -> TrainConfig:
    return update(
        resume_tagger.get_config(),
        recipe="weibo_tagger",
        ema_decay=0.995,
        total_steps=3_000,
        evaluate_every_steps=250,
        checkpoint_every_steps=250,
        **{
            "data.source": "weibo_ner_zh",
            "data.zero_digits": True,
            "model.recurrent_widths": (128,),
            "model.word_dropout_rate": 0.5,
            "optimizer.learning_rate": 2e-3,
        },
    )
