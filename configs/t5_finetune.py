"""T5, mT5, BART or Marian of Transformers, trained further on your own pairs of texts: translations, summaries.

The weights and the tokenizer are those of --init-from: a folder that Transformers wrote, or a name on the Hugging Face
Hub. Each line of the file has a source, a tab and a target. Sources of a T5 begin with the name of their task, such as
"translate English to German: "; write it in the file. Give a BART or a Marian --optimizer.learning-rate 3e-5. A share
of the pairs is held out.
Source: Raffel et al. 2020 for the model; the learning rate is one that Transformers recommends for T5 and AdamW.
Cost: a token of a source and one of its target together cost about 0.36 GFLOP with the 60 million parameters of the
default weights.
Expect: depends on the pairs. jaxnlp translate FOLDER --file FILE shows what the weights do before training.
Command: jaxnlp train t5_finetune --init-from FOLDER --data.train pairs.tsv --workdir runs/my_t5
"""

from data.translation import ParallelText
from jaxnlp.models.encoder_decoder import EncoderDecoderConfig
from jaxnlp.tasks.translation import Translation
from train.config import TrainConfig
from train.optimizer import AdamW
from train.optimizer.schedules import Cosine


def get_config() -> TrainConfig:
    return TrainConfig(
        recipe="t5_finetune",
        data=ParallelText(batch_size=32, batch_tokens=2_048, lengths=(16, 32, 64, 128, 256)),
        model=EncoderDecoderConfig(
            num_layers=6,
            num_heads=8,
            width=512,
            feed_forward_width=2_048,
            context_length=512,
            normalization="rms",
            epsilon=1e-6,
            use_bias=False,
            positions="shared_relative_bias",
            scale_attention=False,
            scale_embeddings=False,
            scale_logits=True,
            embeddings="shared",
            dropout_rate=0.1,
            attention_dropout_rate=0.1,
        ),
        task=Translation(label_smoothing=0.0),
        optimizer=AdamW(
            learning_rate=3e-4, weight_decay=0.01, max_grad_norm=1.0, schedule=Cosine(warmup=20, min_lr_ratio=0.0)
        ),
        init_from="google-t5/t5-small",
        total_steps=400,
        evaluate_every_steps=100,
        checkpoint_every_steps=100,
        log_every_steps=20,
    )
