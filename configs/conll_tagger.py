"""Named entities in English news (CoNLL-2003) by MiniLM, a BiLSTM and a CRF.

MiniLM has a fifth of BERT-base's parameters and lowercases its input, so a character CNN, which reads the true case,
is beside it. The encoder learns at a tenth of the rate of the layers above it (optimizer.blocks_lr_ratio).
--model.no-crf, --model.recurrent-widths and --model.character-features 0 leave out one part each; see docs/tagging.md.
Source: Devlin et al. 2019, section 5.3, and Lample et al. 2016. Differs: MiniLM, the character CNN, true case.
Cost: 15 minutes on two CPU cores with bfloat16 instructions.
Expect: F1 of dev 0.93.
Command: python -m train conll_tagger --workdir runs/conll_tagger
"""

from data.tagged_sentences import TaggedSentences
from jaxnlp.models.tagger import TaggerConfig
from jaxnlp.nn.compute import Compute
from jaxnlp.tasks.tagging import Tagging
from train.config import TrainConfig
from train.optimizer import OptimizerConfig


def get_config() -> TrainConfig:
    return TrainConfig(
        recipe="conll_tagger",
        data=TaggedSentences(source="conll2003_ner", length_multiple=32, max_pieces=192, batch_size=32),
        model=TaggerConfig(
            bert=True,
            word_width=0,
            character_features=60,
            recurrent_widths=(128,),
            input_dropout_rate=0.3,
            output_dropout_rate=0.3,
            compute=Compute(matmul_dtype="auto"),
        ),
        task=Tagging(),
        optimizer=OptimizerConfig(
            name="adamw",
            learning_rate=3e-3,
            blocks_lr_ratio=0.1,
            weight_decay=0.01,
            warmup_steps=200,
            min_lr_ratio=0.02,
        ),
        init_from="sentence-transformers/all-MiniLM-L6-v2",
        ema_decay=0.998,
        best_metric="f1",
        total_steps=1_800,
        evaluate_every_steps=600,
        checkpoint_every_steps=600,
    )
