"""A small classifier of several parts, and updates of its parameters."""

import dataclasses
import functools

import jax
import numpy as np

from jaxnlp.models.bert import BertConfig
from jaxnlp.models.bert_classifier import BertClassifierConfig
from jaxnlp.targets import OneClass
from jaxnlp.text.classifier_processor import TextClassifierProcessor, TextPart
from jaxnlp.text.wordpiece import SPECIAL, WordPieceVocabulary
from tests.processors import sized
from train.optimizer.chain import make_optimizer
from train.optimizer.parameters import describe

ENCODER = BertConfig(num_layers=3, num_heads=1, width=4, max_positions=5, pre_norm=True)
TWO = OneClass(("0", "1"))
PARTS = TextClassifierProcessor(
    WordPieceVocabulary.of_pieces(SPECIAL), 5, (("sst", TextPart(TWO)), ("quora", TextPart(TWO, 2))), "apart"
)
TASKED = BertClassifierConfig(encoder=ENCODER, pair_layer="shared")
DESCRIBE = functools.partial(describe, TASKED.parameter)


def params_of(config):
    """Random, in the shapes of a model's."""
    processor = PARTS if isinstance(config, BertClassifierConfig) else sized(7)
    model = config.build(processor)
    init = jax.eval_shape(model.init, jax.random.key(0), *config.inputs(processor))
    generator = np.random.default_rng(0)
    return jax.tree.map(lambda s: generator.normal(size=s.shape).astype(np.float32), init["params"])


def by_path(tree):
    return {
        tuple(part.key for part in path): np.asarray(leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
    }


def stepped(config, params, gradients, *, frozen=(), parameter=TASKED.parameter):
    """Parameters after an update with each gradient, and the optimizer's state. Args: frozen: names."""
    config = dataclasses.replace(config, frozen=frozen)
    optimizer = make_optimizer(config, total_steps=10, parameter=parameter)
    state, update = jax.jit(optimizer.init)(params), jax.jit(optimizer.update)
    for gradient in gradients:
        updates, state = update(gradient, state, params, progress=np.int32(1))
        params = jax.tree.map(np.add, params, updates)
    return params, state
