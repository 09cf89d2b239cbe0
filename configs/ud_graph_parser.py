"""A graph parser with a bidirectional LSTM over words and characters, on UD English EWT, without tags.

Source: Dozat and Manning 2017. Differs: two LSTM layers of 200 instead of three of 400; characters, no tags, no
pretrained vectors; a moving average of the parameters.
Cost: 10 to 15 minutes on one or two busy CPU cores with bfloat16 instructions.
Expect: UAS of 0.873 and LAS of 0.839 on the development set, without tags, means of three seeds.
Command: jaxnlp train ud_graph_parser --workdir runs/ud_graph_parser
"""

from data.treebank import Treebank
from jaxnlp.models.graph_parser import GraphParserConfig
from jaxnlp.tasks.parsing import Parsing
from train.config import TrainConfig
from train.optimizer import AdamW
from train.optimizer.schedules import Cosine


def get_config() -> TrainConfig:
    return TrainConfig(
        recipe="ud_graph_parser",
        data=Treebank(source="ud_en_ewt", tags="none", system="graph", batch_words=1_024),
        model=GraphParserConfig(
            word_width=100,
            character_width=30,
            character_features=100,
            recurrent_widths=(200, 200),
            arc_width=200,
            relation_width=64,
            word_dropout_rate=0.25,
            input_dropout_rate=0.3,
            hidden_dropout_rate=0.3,
            output_dropout_rate=0.3,
            dropout_rate=0.3,
        ),
        task=Parsing(),
        optimizer=AdamW(learning_rate=2e-3, max_grad_norm=5.0, schedule=Cosine(warmup=200, min_lr_ratio=0.02)),
        ema_decay=0.998,
        best_metric="las",
        total_steps=6_000,
        evaluate_every_steps=1_500,
        checkpoint_every_steps=750,
    )
