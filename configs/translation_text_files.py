"""Translation of your own pairs: two files with parallel lines, or one file with a tab in each line.

The model and its training are those of multi30k_transformer. It may start from a run of span_corruption on your own
texts.
Source: Vaswani et al. 2017, small and pre-norm (Xiong et al. 2020); Provilkov et al. 2020 for BPE dropout.
Cost: about an hour for 30,000 pairs of short sentences on two CPU cores.
Expect: depends on your pairs; see multi30k_transformer for an example.
Command: jaxnlp train translation_text_files --data.train SOURCES TARGETS --workdir runs/translation_text_files
"""

from configs import multi30k_transformer
from data.translation import ParallelText
from train.config import TrainConfig, update


def get_config() -> TrainConfig:
    return update(
        multi30k_transformer.get_config(),
        recipe="translation_text_files",
        data=ParallelText(
            bpe_dropout=0.1,
            batch_size=512,
            batch_tokens=4_096,
            lengths=(8, 12, 16, 20, 24, 32, 48, 64, 96, 128),
        ),
    )
