"""Small models with random parameters, as the runs that courses' graders are given."""

import dataclasses
import functools

import jax
import numpy as np

from jaxnlp.models.attention_lstm import AttentionLSTMConfig
from jaxnlp.models.feed_forward_parser import FeedForwardParserConfig
from jaxnlp.models.gpt import GPTConfig
from jaxnlp.models.perceiver import PerceiverConfig
from jaxnlp.models.recurrent_lm import RecurrentLMConfig
from jaxnlp.models.synthesizer import SynthesizerConfig
from jaxnlp.tasks import Trained
from jaxnlp.tasks.language_model import RecurrentLanguageModel
from jaxnlp.tasks.parsing import Parsing
from jaxnlp.tasks.question_answering import QuestionAnswering
from jaxnlp.tasks.translation import Translation
from jaxnlp.text.characters import MASK, PAD, CharacterVocabulary
from jaxnlp.text.subwords import BLANK, Subwords
from jaxnlp.text.translation import TranslationProcessor
from jaxnlp.text.words import UNK, WordVocabulary
from tests.jaxnlp.models.parser_helpers import processor_of
from tests.random_parameters import random_parameters

QUESTION = "Where was Ann Lee born?"
SIZE = 3
"""Width of the translator's embeddings and states, as in the sanity checks of the assignment."""
NAMES = {
    "gpt": GPTConfig(num_layers=1, num_heads=2, width=8, context_length=64),
    "synthesizer": SynthesizerConfig(num_layers=1, num_heads=2, width=8, context_length=64),
    "perceiver": PerceiverConfig(num_layers=2, num_heads=2, width=8, context_length=64, num_latents=4),
}


def _trained(task, config, processor, inputs, name):
    model = config.build(processor)
    params = jax.device_put(random_parameters(model, *inputs, spread=1.0))
    return Trained(task, model, params, processor, name=name)


@functools.cache
def language_model():
    """A model of seven words."""
    config = RecurrentLMConfig(embedding_width=3, widths=(5,))
    words = WordVocabulary((UNK, *"abcdef"))
    return _trained(RecurrentLanguageModel(), config, words, [np.zeros((1, 1), np.int32)], "words")


@functools.cache
def parser(tag_column="none"):
    """A parser of a few words."""
    processor = processor_of(tag_column)
    config = FeedForwardParserConfig(word_width=4, tag_width=8, label_width=3, hidden_width=8)
    return _trained(Parsing(), config, processor, config.inputs(processor), "parser")


@functools.cache
def translator(**fields):
    """A translator from eight subwords to six."""
    source = Subwords("words", tuple(f"{BLANK}{word}" for word in ("one", "two", "six", "ten")))
    target = Subwords("words", tuple(f"{BLANK}{word}" for word in ("eins", "zwei")))
    config = AttentionLSTMConfig(**{"embedding_width": SIZE, "width": SIZE} | fields)
    tokens = np.ones((1, 2), np.int32)
    return _trained(Translation(), config, TranslationProcessor(source, target), [tokens, tokens], "translator")


@functools.cache
def names(kind="gpt", **fields):
    """A model of questions and places."""
    config = dataclasses.replace(NAMES[kind], **fields)
    vocabulary = CharacterVocabulary.of(f"{QUESTION}OslM\n", special=PAD + MASK)
    return _trained(QuestionAnswering(), config, vocabulary, [np.zeros((1, 4), np.int32)], kind)
