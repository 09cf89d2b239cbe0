"""Classification of film reviews as positive or negative, by a small pretrained BERT.

Source: CS224N, default final project (minBERT), part 1; counterfactually augmented reviews of IMDb: each has a
copy with the opposite sentiment and few changed words.
Cost: 17 minutes on two CPU cores without bfloat16 instructions, 9 to 11 on busy ones with them, from all-MiniLM-L6-v2.
Expect: 93% accuracy on the development set, the mean of three seeds.
Command: jaxnlp train bert_cfimdb --workdir runs/bert_cfimdb
"""

from configs import bert_sst
from train.config import TrainConfig, update


def get_config() -> TrainConfig:
    return update(
        bert_sst.get_config(),
        recipe="bert_cfimdb",
        **{
            "data.source": "cs224n_cfimdb",
            "data.batch_size": 16,
            "data.max_length": 256,
            "data.length_multiple": 64,
            "optimizer.schedule.warmup": 40,
            "total_steps": 214,  # two epochs
            "evaluate_every_steps": 107,
            "checkpoint_every_steps": 107,
        },
    )
