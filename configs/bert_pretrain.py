"""BERT's pretraining, masked language modelling and next-sentence prediction, on Python's documentation.

Source: Devlin et al. 2019, section 3.1 and appendix A.2, at a size for two CPU cores. Differs: a vocabulary trained on
the text, texts of 64 tokens, masks drawn again in each epoch, Muon, no dropout.
Cost: 16 minutes on two busy CPU cores without bfloat16 instructions.
Expect: 3.5 nats per masked token of held-out documents, with 41% accuracy; 78% accuracy on 54 next sentences. The text
and the numbers differ a little between Python versions.
Command: jaxnlp train bert_pretrain --workdir runs/bert_pretrain
"""

from data.masked_text import MaskedText
from jaxnlp.models.bert import BertConfig
from jaxnlp.models.bert_pretraining import BertPretrainingConfig
from jaxnlp.tasks.masked_language_model import MaskedLanguageModel
from train.config import TrainConfig
from train.optimizer import Muon
from train.optimizer.schedules import Cosine


def get_config() -> TrainConfig:
    return TrainConfig(
        recipe="bert_pretrain",
        data=MaskedText(batch_size=32, sequence_length=64, vocabulary_size=4_000),
        model=BertPretrainingConfig(
            encoder=BertConfig(
                num_layers=4,
                num_heads=4,
                width=128,
                max_positions=64,
                dropout_rate=0.0,
                attention_dropout_rate=0.0,
            ),
        ),
        task=MaskedLanguageModel(),
        optimizer=Muon(
            learning_rate=3e-3, beta2=0.99, weight_decay=0.1, schedule=Cosine(warmup=100, min_lr_ratio=0.05)
        ),
        total_steps=3000,
        evaluate_every_steps=250,
        checkpoint_every_steps=250,
    )
