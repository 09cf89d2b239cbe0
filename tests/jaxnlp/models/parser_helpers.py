"""A processor, a batch and configurations for tests of parsers."""

import numpy as np

from jaxnlp.text.conllu import sentence_of
from jaxnlp.text.parser_processor import ParserProcessor
from jaxnlp.text.word_inputs import WordInputs

SENTENCES = [
    sentence_of(
        ["the", "dog", "sees", "a", "cat"], ["D", "N", "V", "D", "N"], [2, 3, 0, 5, 3], ["det", "s", "root", "det", "o"]
    ),
    sentence_of(["cats", "sleep"], ["N", "V"], [2, 0], ["s", "root"]),
]
LENGTHS = (5, 2)
INPUTS = WordInputs.of_sentences([one.words for one in SENTENCES], max_length=16)


def processor_of(tag_column="upos", inputs=INPUTS):
    return ParserProcessor.of_sentences(SENTENCES, inputs, tag_column=tag_column, subtypes=True, system="arc_standard")


PROCESSOR = processor_of()


def batch_of(processor, length=6):
    return processor.batch([processor.encode(sentence) for sentence in SENTENCES], 2, length)


def configurations(steps=4, seed=0):
    """Random nodes [2, S, 18] within each sentence, and random labels [2, S, 12]."""
    draw = np.random.default_rng(seed)
    nodes = np.stack([draw.integers(-1, n + 1, size=(steps, 18)) for n in LENGTHS])
    labels = draw.integers(0, PROCESSOR.num_relations + 1, size=(2, steps, 12))
    return nodes.astype(np.int32), labels.astype(np.int32)
