"""Classification of your own texts, or pairs of texts, from a table, by a pretrained GPT-2, Llama, Mistral or Qwen.

The table is that of `bert_classify`. A dense layer without a bias reads the vector of the last token, as in
Transformers' GPT2ForSequenceClassification, so that `jaxnlp export` writes this class.
Source: Radford et al. 2018 (GPT), section 3.2.
Cost: a step reads at most 2,048 tokens of about 0.75 GFLOP each with the 124 million parameters of the default weights.
Expect: depends on the table; no figure is recorded.
Command: jaxnlp train decoder_classify --data.path reviews.csv --data.label stars --workdir runs/reviews
"""

from data.text_table import TextTable
from jaxnlp.models.decoder_classifier import GPTClassifierConfig
from jaxnlp.tasks.classification import Classification
from train.config import TrainConfig
from train.optimizer import AdamW
from train.optimizer.schedules import Cosine


def get_config() -> TrainConfig:
    return TrainConfig(
        recipe="decoder_classify",
        data=TextTable(batch_size=16),
        model=GPTClassifierConfig(
            embedding_dropout_rate=0.1, attention_dropout_rate=0.1, residual_dropout_rate=0.1, context_length=256
        ),
        task=Classification(),
        optimizer=AdamW(learning_rate=5e-5, weight_decay=0.01, schedule=Cosine(warmup=100, min_lr_ratio=0.0)),
        init_from="openai-community/gpt2",
        best_metric="macro_f1",
        total_steps=800,
        evaluate_every_steps=200,
        checkpoint_every_steps=200,
    )
