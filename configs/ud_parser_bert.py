"""A dependency parser with MiniLM, characters and tags under a bidirectional LSTM, on UD English EWT.

MiniLM has a fifth of BERT-base's parameters. Its learning rate is a tenth of the rate of the layers above it.
Source: Kiperwasser and Goldberg 2016 for the parser; Devlin et al. 2019, section 5.3, for a word's first token.
Cost: 29 to 51 minutes on one busy CPU core with bfloat16 instructions.
Expect: UAS of 0.930 and LAS of 0.917 on the development set, with gold tags; 0.932 and 0.919 with --num-beams 8.
Command: jaxnlp train ud_parser_bert --workdir runs/ud_parser_bert
"""

from configs import ud_parser_lstm
from train.config import TrainConfig, update
from train.optimizer import AdamW
from train.optimizer.schedules import Cosine


def get_config() -> TrainConfig:
    return update(
        ud_parser_lstm.get_config(),
        recipe="ud_parser_bert",
        optimizer=AdamW(
            learning_rate=2e-3, blocks_lr_ratio=0.1, weight_decay=0.01, schedule=Cosine(warmup=200, min_lr_ratio=0.02)
        ),
        init_from="sentence-transformers/all-MiniLM-L6-v2",
        ema_decay=0.998,
        total_steps=3_000,
        evaluate_every_steps=1_000,
        **{
            "data.lengths": (16, 32, 64, 128),
            "model.bert": True,
            "model.word_width": 0,
            "model.word_dropout_rate": 0.0,
            "model.recurrent_widths": (200,),
            "model.hidden_dropout_rate": 0.0,
        },
    )
