"""Birth places: pretraining by span corruption with the hyperparameters of the assignment.

Source: CS224N assignment 5, 2022/2023: minGPT of 4 layers, 8 heads, width 256, block 128, dropout 0.1; 650 epochs of
span corruption in batches of 128, learning rate 6e-3 with a warm-up of 512 * 20 tokens and a cosine down to a tenth
over 200 times the documents' tokens; weight decay 0.1, betas 0.9 and 0.95. Differs: the schedule counts scored
characters, without padding, so it falls later; on a CPU a batch is padded to its longest example, not to 128; the
cosine falls to a tenth and stays there, while minGPT's is clipped at a tenth and rises again afterwards; layers that
add to the residual stream have smaller initial weights (GPT-2), positions are random instead of 0, GELU is approximate;
bfloat16 products if the CPU supports them.
Cost: hours on two CPU cores; no complete run yet.
Expect: published dev accuracy after fine-tuning: 21 to 22%; with the Perceiver about 17%, with the Synthesizer 10%.
Command: jaxnlp train names_pretrain_a5 --workdir runs/names_pretrain_a5
"""

from data.names import NamesPretraining
from jaxnlp.models.gpt import GPTConfig
from jaxnlp.tasks.question_answering import QuestionAnswering
from train.config import TrainConfig
from train.optimizer import AdamW
from train.optimizer.schedules import Cosine

DOCUMENTS, EPOCHS, BATCH, BLOCK = 2937, 650, 128, 128


def get_config() -> TrainConfig:
    return TrainConfig(
        recipe="names_pretrain_a5",
        data=NamesPretraining(corruption="uniform", batch_size=BATCH, sequence_length=BLOCK, held_out=0),
        model=assignment_model(),
        task=QuestionAnswering(),
        optimizer=AdamW(
            learning_rate=6e-3,
            beta2=0.95,
            weight_decay=0.1,
            max_grad_norm=1.0,
            schedule=Cosine(unit="tokens", warmup=512 * 20, end=200 * DOCUMENTS * BLOCK, min_lr_ratio=0.1),
        ),
        total_steps=EPOCHS * DOCUMENTS // BATCH,
        evaluate_every_steps=500,
        checkpoint_every_steps=500,
    )


def assignment_model() -> GPTConfig:
    """The assignment's minGPT."""
    return GPTConfig(
        num_layers=4,
        num_heads=8,
        width=256,
        context_length=BLOCK,
        embedding_dropout_rate=0.1,
        attention_dropout_rate=0.1,
        residual_dropout_rate=0.1,
    )
