"""GPT-2 of Transformers, or another GPT-2 of your own, trained further on texts of your own.

The weights and the tokenizer are those of --init-from: a folder that Transformers wrote, or a name on the Hugging Face
Hub. The last tenth of each file is held out.
Source: Radford et al. 2019 for the model; the learning rate is the default of Transformers' Trainer.
Cost: a step has 2,048 tokens of about 0.86 GFLOP each with the 124 million parameters of the default weights.
Expect: depends on the text. jaxnlp perplexity FOLDER --file FILE shows what the weights know before training.
Command: jaxnlp train gpt2_finetune --init-from FOLDER --data.path my.txt --workdir runs/my_gpt2
"""

from data.byte_pair_text import BytePairText
from jaxnlp.models.gpt import GPTConfig
from jaxnlp.tasks.language_model import LanguageModel
from train.config import TrainConfig
from train.optimizer import AdamW
from train.optimizer.schedules import Cosine


def get_config() -> TrainConfig:
    return TrainConfig(
        recipe="gpt2_finetune",
        data=BytePairText(source="text_file", batch_size=8, sequence_length=256, evaluation_batch_size=8),
        model=GPTConfig(
            num_layers=12,
            num_heads=12,
            width=768,
            context_length=1024,
            embedding_dropout_rate=0.1,
            attention_dropout_rate=0.1,
            residual_dropout_rate=0.1,
            tie_embeddings=True,
        ),
        task=LanguageModel(sample_prompt="\n", sample_tokens=100),
        optimizer=AdamW(
            learning_rate=5e-5, weight_decay=0.01, max_grad_norm=1.0, schedule=Cosine(warmup=20, min_lr_ratio=0.0)
        ),
        init_from="openai-community/gpt2",
        total_steps=400,
        evaluate_every_steps=100,
        checkpoint_every_steps=100,
        log_every_steps=20,
    )
