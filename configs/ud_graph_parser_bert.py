"""A graph parser with MiniLM and characters under a bidirectional LSTM, on UD English EWT, without tags.

MiniLM's learning rate is a twenty-fifth of the rate of the layers above it.
Source: Dozat and Manning 2017 for the parser; Devlin et al. 2019, section 5.3, for a word's first token.
Cost: 20 minutes on one CPU core with bfloat16 instructions.
Expect: UAS of 0.922 and LAS of 0.897 on the development set, without tags.
Command: jaxnlp train ud_graph_parser_bert --workdir runs/ud_graph_parser_bert
"""

from configs import ud_graph_parser
from train.config import TrainConfig, update
from train.optimizer import AdamW
from train.optimizer.schedules import Cosine


def get_config() -> TrainConfig:
    return update(
        ud_graph_parser.get_config(),
        recipe="ud_graph_parser_bert",
        optimizer=AdamW(
            learning_rate=2e-3, blocks_lr_ratio=0.04, weight_decay=0.01, schedule=Cosine(warmup=200, min_lr_ratio=0.02)
        ),
        init_from="sentence-transformers/all-MiniLM-L6-v2",
        total_steps=2_400,
        evaluate_every_steps=1_200,
        checkpoint_every_steps=400,
        **{
            "data.lengths": (16, 32, 64, 128),
            "model.bert": True,
            "model.word_width": 0,
            "model.word_dropout_rate": 0.0,
            "model.recurrent_widths": (200,),
            "model.hidden_dropout_rate": 0.0,
            "model.arc_width": 400,
            "model.relation_width": 100,
        },
    )
