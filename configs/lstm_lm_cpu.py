"""A word language model that two CPU cores train in an hour or two: an LSTM with the regularisers that fit its length.

Source: Merity et al. 2018 (AWD-LSTM), with what a short run asks for: narrower, less dropout, Adam
in the place of SGD.
Cost: see docs/results/lstm_lm_cpu.json.
Expect: the same.
Command: python -m train lstm_lm_cpu --workdir runs/lstm_lm_cpu
"""

from data.word_text import WordText
from jaxnlp.models.recurrent_lm import RecurrentLMConfig
from train.config import TrainConfig
from train.objectives import LossConfig
from train.optimizer import OptimizerConfig


def get_config() -> TrainConfig:
    return TrainConfig(
        recipe="lstm_lm_cpu",
        data=WordText(source="cmu_hw4p1", mode="tracks", sequence_length=50, batch_size=32, evaluation_batch_size=8),
        model=RecurrentLMConfig(
            embedding_width=256,
            widths=(512, 256),
            tie_embeddings=True,
            embedding_dropout_rate=0.05,
            input_dropout_rate=0.3,
            hidden_dropout_rate=0.2,
            output_dropout_rate=0.3,
            weight_dropout_rate=0.2,
            matmul_dtype="bfloat16",
        ),
        objective="next_token_carried",
        loss=LossConfig(chunk_tokens=1600),
        optimizer=OptimizerConfig(name="adam", learning_rate=3e-3, clip_norm=0.5),
        ema_decay=0.998,
        total_steps=13_000,
        evaluate_every_steps=1_300,
        checkpoint_every_steps=650,
        sample_prompt="= The History of the",
        sample_length_tokens=60,
    )
