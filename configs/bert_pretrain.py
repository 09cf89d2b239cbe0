"""BERT's own pretraining: masked pieces of words and next sentences, on the text that every Python carries.

Source: Devlin et al. 2019, section 3.1, at a size for two CPU cores; a vocabulary of the text's own.
Cost: about ten minutes on two CPU cores.
Expect: TODO.
Command: python -m train bert_pretrain --workdir runs/bert_pretrain
"""

from data.masked_text import MaskedText
from jaxnlp.models.bert import BertConfig
from jaxnlp.models.bert_pretraining import BertPretrainingConfig
from train.config import TrainConfig
from train.optimizer import OptimizerConfig


def get_config() -> TrainConfig:
    return TrainConfig(
        recipe="bert_pretrain",
        data=MaskedText(batch_size=32, sequence_length=128, vocabulary_size=4_000),
        model=BertPretrainingConfig(
            encoder=BertConfig(num_layers=4, num_heads=4, width=128, max_positions=128, matmul_dtype="auto")
        ),
        objective="masked_tokens",
        optimizer=OptimizerConfig(
            learning_rate=1e-3, beta2=0.98, weight_decay=0.01, clip_norm=1.0, warmup_steps=200, final_fraction=0.05
        ),
        total_steps=3000,
        evaluate_every_steps=500,
        checkpoint_every_steps=500,
    )
