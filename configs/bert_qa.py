"""BERT that finds answers in texts, from your own questions in SQuAD's format.

Source: Devlin et al. 2019, sections 4.2 and 4.3, and google-research/bert for windows of 384 tokens. Differs: windows
that share 128 tokens; the softmax is over the tokens of the text and [CLS].
Cost: not measured; it depends on your questions.
Expect: depends on your questions.
Command: jaxnlp train bert_qa --data.train train.json --workdir runs/bert_qa
"""

from data.squad import QuestionContexts
from jaxnlp.models.extractive_qa import BertSpanConfig
from jaxnlp.tasks.extractive_qa import ExtractiveQA
from train.config import TrainConfig
from train.optimizer import AdamW
from train.optimizer.schedules import Cosine


def get_config() -> TrainConfig:
    return TrainConfig(
        recipe="bert_qa",
        data=QuestionContexts(source="files", batch_size=16, max_length=384, overlap=128, length_multiple=128),
        model=BertSpanConfig(),
        task=ExtractiveQA(),
        optimizer=AdamW(learning_rate=5e-5, weight_decay=0.01, schedule=Cosine(warmup=100)),
        init_from="sentence-transformers/all-MiniLM-L6-v2",
        best_metric="f1",
        total_steps=1000,
        evaluate_every_steps=200,
        checkpoint_every_steps=200,
    )
