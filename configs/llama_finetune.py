"""A small decoder of Transformers, such as Qwen3, Qwen2.5, TinyLlama or SmolLM2, trained further on texts of your own.

The weights and the tokenizer are those of --init-from: a folder that Transformers wrote, or a name on the Hugging Face
Hub. The model's shape is theirs. The last tenth of each file is held out.
Source: Touvron et al. 2023 for the model, Yang et al. 2025 for the default weights; the learning rate is one that is
usual for fine-tuning all parameters.
Cost: a step has 2,048 tokens of about 3.6 GFLOP each with the 596 million parameters of the default weights. Training
takes 16 bytes for each parameter.
Expect: depends on the text. jaxnlp perplexity FOLDER --file FILE shows what the weights know before training.
Command: jaxnlp train llama_finetune --init-from FOLDER --data.path my.txt --workdir runs/my_llama
"""

from data.byte_pair_text import BytePairText
from jaxnlp.models.llama import LlamaConfig
from jaxnlp.tasks.language_model import LanguageModel
from train.config import TrainConfig
from train.optimizer import AdamW
from train.optimizer.schedules import Cosine


def get_config() -> TrainConfig:
    return TrainConfig(
        recipe="llama_finetune",
        data=BytePairText(source="text_file", batch_size=8, sequence_length=256, evaluation_batch_size=8),
        model=LlamaConfig(
            num_layers=28,
            num_heads=16,
            num_key_heads=8,
            head_width=128,
            width=1024,
            feed_forward_width=3072,
            context_length=32_768,
            rotary_base=1_000_000.0,
            head_norm=True,
            tie_embeddings=True,
        ),
        task=LanguageModel(sample_prompt="\n", sample_tokens=100),
        optimizer=AdamW(
            learning_rate=1e-5, weight_decay=0.01, max_grad_norm=1.0, schedule=Cosine(warmup=20, min_lr_ratio=0.0)
        ),
        init_from="Qwen/Qwen3-0.6B-Base",
        total_steps=400,
        evaluate_every_steps=100,
        checkpoint_every_steps=100,
        log_every_steps=20,
    )
