"""Tiny configs of real recipes, which train in a second or two, as commands of `jaxnlp train`."""

import random
from pathlib import Path

TOTAL_STEPS, EVALUATE_EVERY, SAVE_EVERY = 40, 20, 8
WORDS = ["the", "tide", "eats", "that", "stone", "and", "sand", "does", "not", "mind", "so"]
TEXTS = {
    "gpt": "gpt_text_file --data.batch-size 4 --data.sequence-length 8 --data.evaluation-batch-size 8 "
    "--model.num-layers 1 --model.num-heads 2 --model.width 8 --model.context-length 8 --accumulation-steps 2 "
    "--ema-decay 0.9 --task.sample-prompt None --data.num-workers 1",
    "lstm": "lstm_lm_cpu --data.source text_file --data.batch-size 4 --data.sequence-length 8 --data.minimum-count 1 "
    "--data.evaluation-batch-size 2 --data.length-multiple 8 --model.embedding-width 8 --model.widths 12 8 "
    "--task.num-sampled None --task.num-frequent 4000 --task.sample-prompt None",
    "bert": "bert_pretrain --data.source text_file --data.batch-size 4 --data.sequence-length 24 "
    "--data.vocabulary-size 60 --model.encoder.num-layers 1 --model.encoder.num-heads 2 --model.encoder.width 16 "
    "--model.encoder.max-positions 24",
}
OTHERS = {
    "translator": "number_words --data.epoch-pairs 400 --data.held-out-pairs 16 --data.batch-size 8 "
    "--data.batch-tokens 256 --data.lengths 96 --data.vocabulary-size 300 --model.num-layers 1 "
    "--model.num-heads 2 --model.width 16 --model.dropout-rate 0.1",
    "tagger": "small_grammar_tagger --data.sentences 200 --data.held-out-sentences 16 --data.batch-size 8 "
    "--model.word-width 8 --model.character-features 8 --model.recurrent-widths 8",
    "parser": "small_grammar_parser --data.sentences 200 --data.held-out-sentences 16 --data.batch-words 128 "
    "--data.lengths 32 --model.hidden-width 16 --model.word-width 8 --model.tag-width 8",
    "vit": "vit_digits --data.batch-size 8 --model.num-layers 1 --model.num-heads 2 --model.width 16 "
    "--model.feed-forward-width 16",
}
PAIR = "gpt by two processes"
TEXTS[PAIR] = TEXTS["gpt"].replace("--data.num-workers 1", "--distributed")
FAMILIES = (*TEXTS, *OTHERS)
EVERY = (
    f"--total-steps {TOTAL_STEPS} --evaluate-every-steps {EVALUATE_EVERY} --checkpoint-every-steps {SAVE_EVERY} "
    "--log-every-steps 1 --optimizer.schedule.warmup 4"
)


def write_text(path: Path) -> None:
    """A text of a few documents, the same each time."""
    draw = random.Random(0)
    documents = (" ".join(draw.choices(WORDS, k=40)) + ".\n" + " ".join(draw.choices(WORDS, k=40)) for _ in range(40))
    path.write_text(".\n\n".join(documents) + ".\n", encoding="utf-8")


def processes(family: str) -> int:
    """How many train one run."""
    return 2 if family == PAIR else 1


def command(family: str, text: Path) -> list[str]:
    """The words of `jaxnlp train` for a family, without the run's folder."""
    path = f"--data.path {text}" if family in TEXTS else ""
    return ["train", *f"{TEXTS.get(family) or OTHERS[family]} {path} {EVERY}".split()]
