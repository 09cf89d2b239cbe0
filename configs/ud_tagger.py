"""Parts of speech of UD English EWT, which a dependency parser reads, by BiLSTM-CRF with a character CNN.

Source: Ma and Hovy 2016. Differs: Universal POS tags, no pretrained vectors, AdamW, words that are read as unknown.
Cost: 2 minutes on one CPU core with bfloat16 instructions, 15 on one of a busy machine.
Expect: accuracy of 0.942 on the development set, the mean of three seeds.
Command: jaxnlp train ud_tagger --workdir runs/ud_tagger
"""

from configs import conll_bilstm_crf
from data.tagged_sentences import TaggedSentences
from train.config import TrainConfig, update


def get_config() -> TrainConfig:
    return update(
        conll_bilstm_crf.get_config(),
        recipe="ud_tagger",
        data=TaggedSentences(source="ud_en_ewt", batch_size=32),
        best_metric="accuracy",
        total_steps=3_000,
        evaluate_every_steps=500,
        checkpoint_every_steps=500,
        **{"model.word_dropout_rate": 0.1},
    )
