"""Language modelling on the training texts of text_rnn, without their labels, from which the classifier starts.

The source and the held-out rows must be those of the classifier. --data.unlabelled FILE adds texts of your own, one a
line.
Source: Dai and Le 2015, section 2. Differs: dropout, a sampled softmax, and an output bias that starts from word
frequencies.
Cost: a minute on two busy CPU cores for the sentences of SST-2.
Expect: perplexity 253 of the dev sentences of SST-2; for the classifier see docs/classification.md.
Command: jaxnlp train text_rnn_pretrain --data.source sst2 --workdir runs/sst2_texts
"""

from data.texts_of_table import TextsOfTable
from jaxnlp.models.recurrent_lm import RecurrentLMConfig
from jaxnlp.tasks.language_model import RecurrentLanguageModel
from train.config import TrainConfig
from train.optimizer import AdamW
from train.optimizer.schedules import Cosine


def get_config() -> TrainConfig:
    return TrainConfig(
        recipe="text_rnn_pretrain",
        data=TextsOfTable(source="mr", tokens="words", vocabulary_size=20_000, minimum_count=1, batch_size=50),
        model=RecurrentLMConfig(
            embedding_width=300,
            widths=(256,),
            init_bias_from_unigram=True,
            input_dropout_rate=0.5,
            output_dropout_rate=0.5,
        ),
        task=RecurrentLanguageModel(num_sampled=1_000, num_frequent=2_000),
        optimizer=AdamW(
            learning_rate=2e-3, weight_decay=0.1, max_grad_norm=1.0, schedule=Cosine(warmup=50, min_lr_ratio=0.02)
        ),
        ema_decay=0.99,
        total_steps=600,
        evaluate_every_steps=300,
        checkpoint_every_steps=300,
    )
