"""Named entities in English news (CoNLL-2003) by BiLSTM-CRF with a character CNN, without pretrained weights.

--model.no-crf, --model.character-features 0 and --model.recurrent-widths leave out one part each; see docs/tagging.md.
Source: Ma and Hovy 2016, table 5, with random word embeddings. Differs: AdamW instead of SGD, random
replacement of words by the unknown word, a moving average of the parameters.
Cost: 17 to 26 minutes on one core of a busy machine with bfloat16 instructions.
Expect: F1 of 0.915 to 0.917 on the development set.
Command: jaxnlp train conll_bilstm_crf --workdir runs/conll_bilstm_crf
"""

from data.tagged_sentences import TaggedSentences
from jaxnlp.models.tagger import TaggerConfig
from jaxnlp.tasks.tagging import Tagging
from train.config import TrainConfig
from train.optimizer import AdamW
from train.optimizer.schedules import Cosine


def get_config() -> TrainConfig:
    return TrainConfig(
        recipe="conll_bilstm_crf",
        data=TaggedSentences(source="conll2003_ner", batch_size=32),
        model=TaggerConfig(
            word_width=100,
            character_features=60,
            recurrent_widths=(200,),
            word_dropout_rate=0.3,
        ),
        task=Tagging(),
        optimizer=AdamW(learning_rate=2e-3, weight_decay=0.01, schedule=Cosine(warmup=200, min_lr_ratio=0.02)),
        ema_decay=0.998,
        best_metric="f1",
        total_steps=12_000,
        evaluate_every_steps=1_000,
        checkpoint_every_steps=2_000,
    )
