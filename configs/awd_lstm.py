"""AWD-LSTM on WikiText-2, for a GPU.

Source: Merity et al. 2018, and salesforce/awd-lstm-lm for the values that its README gives for WikiText-2: three
layers, 1,150 wide, embeddings of 400, NT-ASGD at a rate of 30; validation perplexity 68.7 after 750 epochs, test 65.6,
and 52 with a continuous cache.
With another batch size or length, set --optimizer.reference-tokens to their product: the learning rate is for this
number of words.
Differs: no weight decay of biases and embeddings; lengths are multiples of 10, or on a GPU 35 and 70; articles are
concatenated in another order in each epoch.
Cost: not measured yet; for a GPU.
Expect: not measured yet.
Command: jaxnlp train awd_lstm --workdir runs/awd_lstm
"""

from data.word_text import WordText
from jaxnlp.models.recurrent_lm import RecurrentLMConfig
from jaxnlp.tasks.language_model import RecurrentLanguageModel
from train.config import TrainConfig
from train.optimizer import SGD
from train.optimizer.schedules import Constant


def get_config() -> TrainConfig:
    return TrainConfig(
        recipe="awd_lstm",
        data=WordText(source="wikitext2", mode="streams", sequence_length=70, batch_size=80, evaluation_batch_size=10),
        model=RecurrentLMConfig(
            embedding_width=400,
            widths=(1150, 1150, 400),
            tie_embeddings=True,
            embedding_dropout_rate=0.1,
            input_dropout_rate=0.65,
            hidden_dropout_rate=0.2,
            output_dropout_rate=0.4,
            weight_dropout_rate=0.5,
        ),
        task=RecurrentLanguageModel(
            sample_prompt="= The History of the",
            activation_regularization=2.0,
            temporal_activation_regularization=1.0,
        ),
        optimizer=SGD(
            learning_rate=30.0, max_grad_norm=0.25, weight_decay=1.2e-6, reference_tokens=80 * 70, schedule=Constant()
        ),
        nt_asgd_patience=5,
        total_steps=286_000,
        evaluate_every_steps=382,
        checkpoint_every_steps=382,
    )
