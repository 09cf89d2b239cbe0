"""Parts of speech of UD English EWT by MiniLM, characters, a BiLSTM and a CRF.

--data.tags xpos learns the treebank's own tags, those of the Penn Treebank, in place of the Universal POS tags;
--data.tags upos xpos feats learns both, and morphological features, each with its own output.
Source: Devlin et al. 2019, section 5.3, and Lample et al. 2016. Differs: MiniLM, the character CNN, true case.
Cost: an hour on one core of a busy machine with bfloat16 instructions.
Expect: accuracy of 0.968 on the development set.
Command: jaxnlp train ud_tagger_bert --workdir runs/ud_tagger_bert
"""

from configs import conll_tagger
from data.tagged_sentences import TaggedSentences
from train.config import TrainConfig, update


def get_config() -> TrainConfig:
    return update(
        conll_tagger.get_config(),
        recipe="ud_tagger_bert",
        data=TaggedSentences(source="ud_en_ewt", batch_size=32, length_multiple=32, max_pieces=192),
        best_metric="accuracy",
        total_steps=2_400,
        evaluate_every_steps=600,
        checkpoint_every_steps=600,
    )
