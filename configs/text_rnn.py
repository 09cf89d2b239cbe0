"""Classification of sentences by a recurrent network with attention: film reviews (MR).

The report marks the words with the largest attention weights. Options: --model.cell rnn_tanh and gru, --model.pooling
last, mean and max, and the data sets of `text_cnn`. --init-from takes a run of text_rnn_pretrain.
Source: Yang et al. 2016, section 2.2, for the attention. Differs: LSTM layers, a moving average of the parameters, and
dropout of word vectors.
Cost: 1 to 2 minutes on two busy CPU cores.
Expect: SST-2 79.8%, SST-5 40.1%, TREC 85.4%; see docs/classification.md.
Command: jaxnlp train text_rnn --workdir runs/text_rnn
"""

from configs import text_cnn
from jaxnlp.models.text_rnn import TextRNNConfig
from train.config import TrainConfig, update


def get_config() -> TrainConfig:
    return update(
        text_cnn.get_config(),
        recipe="text_rnn",
        model=TextRNNConfig(
            embedding_width=300, widths=(128,), pooling="attention", dropout_rate=0.5, embedding_dropout_rate=0.6
        ),
        total_steps=600,
        evaluate_every_steps=600,
        checkpoint_every_steps=300,
        **{"optimizer.learning_rate": 2e-3},
    )
