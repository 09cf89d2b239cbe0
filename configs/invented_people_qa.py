"""A BiLSTM that finds birth places in texts about invented people, and questions that a text does not answer.

Source: Chen et al. 2017, section 3.2, for the BiLSTM and for the feature of tokens that are also in the question.
Cost: 1 to 2 minutes on two busy CPU cores.
Expect: F1 above 0.99 of questions about held-out people in held-out places.
Command: jaxnlp train invented_people_qa --workdir runs/invented_people_qa
"""

from data.squad import QuestionContexts
from jaxnlp.models.extractive_qa import RecurrentSpanConfig
from jaxnlp.tasks.extractive_qa import ExtractiveQA
from train.config import TrainConfig
from train.optimizer import AdamW
from train.optimizer.schedules import Cosine


def get_config() -> TrainConfig:
    return TrainConfig(
        recipe="invented_people_qa",
        data=QuestionContexts(batch_size=32, vocabulary_size=400, max_length=192, overlap=64, length_multiple=64),
        model=RecurrentSpanConfig(embedding_dropout_rate=0.3),
        task=ExtractiveQA(),
        optimizer=AdamW(learning_rate=3e-3, schedule=Cosine(warmup=20, min_lr_ratio=0.05)),
        best_metric="f1",
        total_steps=400,
        evaluate_every_steps=100,
        checkpoint_every_steps=100,
    )
