"""A word language model that two CPU cores train in an hour: an LSTM with the regularisers that fit its length.

Source: Merity et al. 2018 (AWD-LSTM), with what a short run asks for: narrower, less
dropout, and Muon in the place of SGD: Adam stays for hundreds of steps at the frequencies of words, or diverges.
Cost: about an hour on two CPU cores.
Expect: see docs/results/lstm_lm_cpu.json.
Command: python -m train lstm_lm_cpu --workdir runs/lstm_lm_cpu
"""

from data.word_text import WordText
from jaxnlp.models.recurrent_lm import RecurrentLMConfig
from train.config import TrainConfig
from train.optimizer import OptimizerConfig


def get_config() -> TrainConfig:
    return TrainConfig(
        recipe="lstm_lm_cpu",
        data=WordText(source="cmu_hw4p1", mode="tracks", sequence_length=70, batch_size=32, evaluation_batch_size=8),
        model=RecurrentLMConfig(
            embedding_width=256,
            widths=(512, 256),
            tie_embeddings=True,
            scale_embeddings=True,
            forget_bias=1.0,
            input_dropout_rate=0.2,
            hidden_dropout_rate=0.2,
            output_dropout_rate=0.3,
            weight_dropout_rate=0.2,
            matmul_dtype="bfloat16",
        ),
        objective="next_token_carried",
        optimizer=OptimizerConfig(
            name="muon", learning_rate=5e-3, beta2=0.99, clip_norm=1.0, warmup_steps=200, final_fraction=0.02
        ),
        ema_decay=0.998,
        total_steps=5_000,
        evaluate_every_steps=1_000,
        checkpoint_every_steps=500,
        sample_prompt="= The History of the",
        sample_length_tokens=60,
    )
