"""Pretraining of afqmc_encoder: masked language modelling on AFQMC's training pairs, without labels.

Both questions of a pair are read together, and a masked character may be copied from the other question. So the
encoder learns to compare them. It also predicts whether the second question belongs to the first.
Source: Devlin et al. 2019, section 3.1. Data: the CLUE benchmark.
Cost: 39 minutes on two busy CPU cores with bfloat16 instructions.
Expect: 76% accuracy on the masked tokens of held-out pairs, and 90% on the second questions.
Command: jaxnlp train afqmc_pretrain --workdir runs/afqmc_pretrain
"""

import dataclasses

from configs import afqmc_encoder, bert_pretrain
from data.masked_text import MaskedText
from jaxnlp.models.bert_classifier import BertClassifierConfig
from train.config import TrainConfig, update


def get_config() -> TrainConfig:
    model = afqmc_encoder.get_config().model
    assert isinstance(model, BertClassifierConfig)
    encoder = dataclasses.replace(model.encoder, use_pooler=True, dropout_rate=0.0, attention_dropout_rate=0.0)
    return update(
        bert_pretrain.get_config(),
        recipe="afqmc_pretrain",
        data=MaskedText(source="afqmc", batch_size=128, sequence_length=64, validation_fraction=0.02),
        evaluate_every_steps=500,
        checkpoint_every_steps=500,
        **{"model.encoder": encoder},
    )
