"""Classification of sentences by sentiment, in five classes, by a small pretrained BERT.

Source: CS224N, default final project (minBERT), part 1: dropout and a linear layer on the encoder, which is
fine-tuned; bert_sst_frozen does not train the encoder.
Differs: against memorisation of the 8,544 sentences, a fifth of the tokens is hidden in training, labels are smoothed,
and the moving average of the parameters is evaluated.
Cost: 12 minutes on two CPU cores without bfloat16 instructions, 3 to 7 with them, from all-MiniLM-L6-v2.
Expect: 49.1% accuracy on the development set with bfloat16 products, the mean of three seeds.
Command: jaxnlp train bert_sst --workdir runs/bert_sst
"""

from configs import bert_classify
from train.config import TrainConfig, update


def get_config() -> TrainConfig:
    return update(
        bert_classify.get_config(),
        recipe="bert_sst",
        **{
            "data.source": "cs224n_sst",
            "best_metric": "accuracy",
            "total_steps": 801,  # three epochs
            "evaluate_every_steps": 133,
            "checkpoint_every_steps": 267,
        },
    )
