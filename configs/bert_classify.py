"""Classification of your own texts, or pairs of texts, from a table, by a small pretrained BERT.

The table is CSV, TSV or JSON lines; its columns are named by --data.text, --data.pair and --data.label. A tenth of the
rows is held out for validation, unless --data.validation-path names a second table.
Source: Devlin et al. 2019, section 4.1, with a vector that is the mean over tokens.
Cost: 3 minutes on two CPU cores with bfloat16 instructions for 8,544 sentences, from all-MiniLM-L6-v2.
Expect: 48.8% accuracy on the development set of SST, which has five classes, from a table of its sentences.
Command: jaxnlp train bert_classify --data.path reviews.csv --data.label stars --workdir runs/reviews
"""

from data.text_table import TextTable
from jaxnlp.models.bert_classifier import BertClassifierConfig
from jaxnlp.tasks.classification import Classification
from train.config import TrainConfig
from train.optimizer import AdamW
from train.optimizer.schedules import Cosine


def get_config() -> TrainConfig:
    return TrainConfig(
        recipe="bert_classify",
        data=TextTable(batch_size=32),
        model=BertClassifierConfig(pooling="mean", token_dropout_rate=0.2),
        task=Classification(label_smoothing=0.1),
        optimizer=AdamW(learning_rate=1e-4, weight_decay=0.01, schedule=Cosine(warmup=100, min_lr_ratio=0.0)),
        init_from="sentence-transformers/all-MiniLM-L6-v2",
        ema_decay=0.99,
        best_metric="macro_f1",
        total_steps=800,
        evaluate_every_steps=200,
        checkpoint_every_steps=200,
    )
