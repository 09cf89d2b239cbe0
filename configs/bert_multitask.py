"""One encoder for sentiment, paraphrases and semantic textual similarity: a small pretrained BERT for three tasks.

Source: CS224N, default final project (minBERT), part 2. Each batch is of one task, drawn in proportion to its size at
first, and less so later (Stickland and Murray 2019).
Differs: the encoder is a sentence encoder of six layers; similarity is the cosine of mean vectors (Reimers and Gurevych
2019); without Quora's large training file, 16,000 rows of its dev file are for training, and the other 4,212 for
validation.
Cost: 21 minutes on one CPU core with AMX, from all-MiniLM-L6-v2; about 100 on one without bfloat16 instructions.
Expect: 50% accuracy on SST, 83.5% on Quora, and a Pearson correlation of 0.87 on STS, each on the development set.
Pairs of Quora were in the encoder's training.
Command: jaxnlp train bert_multitask --workdir runs/bert_multitask
"""

from configs import bert_classify
from data.minbert import MinBertData
from jaxnlp.models.text_tasks import TextTasksConfig
from jaxnlp.nn.compute import TransformerCompute
from jaxnlp.tasks.text_tasks import TextTasks
from train.config import TrainConfig, update


def get_config() -> TrainConfig:
    return update(
        bert_classify.get_config(),
        recipe="bert_multitask",
        data=MinBertData(
            parts=("sst", "quora", "sts"),
            batch_size=32,
            schedule="annealed",
            schedule_steps=800,  # with 16,000 rows, Quora has half of the first batches and 37% after these steps
        ),
        model=TextTasksConfig(
            pooling="mean",
            pair_layer="separate",
            token_dropout_rate=0.2,
            cosine_logit=(10.8, 0.82),  # a logistic regression on 2,000 training rows
            compute=TransformerCompute(matmul_dtype="auto"),
        ),
        task=TextTasks(
            label_smoothing=0.1,
            part_weights=(1.0, 1.0, 10.0),  # the gradient of a squared error is about a tenth of the others
        ),
        best_metric="mean_score",
        total_steps=3000,
        evaluate_every_steps=500,
        checkpoint_every_steps=250,
    )
