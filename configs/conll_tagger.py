"""Named entities in English news (CoNLL-2003) by MiniLM, a BiLSTM and a CRF.

MiniLM has a fifth of BERT-base's parameters. It lowercases its input, so a character CNN reads the true case. The
learning rate of MiniLM is a tenth of the learning rate of the layers above it (optimizer.blocks_lr_ratio).
--model.no-crf, --model.recurrent-widths and --model.character-features 0 leave out one part each; see docs/tagging.md.
Source: Devlin et al. 2019, section 5.3, and Lample et al. 2016. Differs: MiniLM, the character CNN, true case.
Cost: 20 minutes on one busy CPU core with bfloat16 instructions.
Expect: F1 of 0.934 on the development set.
Command: jaxnlp train conll_tagger --workdir runs/conll_tagger
"""

from configs import conll_bilstm_crf
from train.config import TrainConfig, update


def get_config() -> TrainConfig:
    return update(
        conll_bilstm_crf.get_config(),
        recipe="conll_tagger",
        init_from="sentence-transformers/all-MiniLM-L6-v2",
        total_steps=1_800,
        evaluate_every_steps=600,
        checkpoint_every_steps=600,
        **{
            "data.length_multiple": 32,
            "data.max_pieces": 192,
            "model.bert": True,
            "model.word_width": 0,
            "model.word_dropout_rate": 0.0,
            "model.recurrent_widths": (128,),
            "model.input_dropout_rate": 0.3,
            "model.output_dropout_rate": 0.3,
            "optimizer.learning_rate": 3e-3,
            "optimizer.blocks_lr_ratio": 0.1,
        },
    )
