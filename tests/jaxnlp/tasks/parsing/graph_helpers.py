"""A graph parser with random parameters, and the batch of its sentences."""

import dataclasses
import functools

import jax
import numpy as np

from data.pipelines.tree_batches import derived, tree_batch
from jaxnlp.models.graph_parser import GraphParserConfig
from jaxnlp.tasks import Trained
from jaxnlp.tasks.parsing import Parsing
from jaxnlp.text.conllu import sentence_of
from tests.jaxnlp.models.parser_helpers import INPUTS, SENTENCES, processor_of
from tests.random_parameters import random_parameters

PROCESSOR = dataclasses.replace(processor_of("none", dataclasses.replace(INPUTS, max_length=32)), system="graph")
CONFIG = GraphParserConfig(
    word_width=4, character_width=3, character_features=4, recurrent_widths=(5,), arc_width=6, relation_width=5
)
NEW = sentence_of(["a", "dog", "sleeps"], ["D", "N", "V"], [2, 3, 0], ["new", "s", "root"])


@functools.cache
def trained_of(config=CONFIG):
    """The parser, whose scores differ enough that no two trees have the same."""
    model = config.build(PROCESSOR)
    params = random_parameters(model, *config.inputs(PROCESSOR), spread=1.0)
    return Trained(Parsing(), model, jax.device_put(params), PROCESSOR, name="graph")


def batch():
    """Three sentences and a row of padding, 8 words each. The first word of the third has an unknown relation."""
    return tree_batch(PROCESSOR, [derived(one, PROCESSOR) for one in (*SENTENCES, NEW)], 4, 8)


def log_softmax(x):
    return x - np.logaddexp.reduce(x)
