"""A small random model of each family, and inputs of its exported functions."""

import dataclasses
import functools

import jax

from jaxnlp.images.palette import Palette
from jaxnlp.images.processor import ImageProcessor
from jaxnlp.models.attention_lstm import AttentionLSTMConfig
from jaxnlp.models.bert import BertConfig
from jaxnlp.models.bert_classifier import BertClassifierConfig
from jaxnlp.models.bert_pretraining import BertPretrainingConfig
from jaxnlp.models.clip import CLIPConfig, TextEncoderConfig
from jaxnlp.models.decoder_classifier import LlamaClassifierConfig
from jaxnlp.models.encoder_decoder import EncoderDecoderConfig
from jaxnlp.models.extractive_qa import BertSpanConfig, RecurrentSpanConfig
from jaxnlp.models.feed_forward_parser import FeedForwardParserConfig
from jaxnlp.models.gpt import GPTConfig
from jaxnlp.models.graph_parser import GraphParserConfig
from jaxnlp.models.llama import LlamaConfig
from jaxnlp.models.perceiver import PerceiverConfig
from jaxnlp.models.recurrent_lm import RecurrentLMConfig
from jaxnlp.models.recurrent_parser import RecurrentParserConfig
from jaxnlp.models.synthesizer import SynthesizerConfig
from jaxnlp.models.tagger import TaggerConfig
from jaxnlp.models.text_cnn import TextCNNConfig
from jaxnlp.models.text_rnn import TextRNNConfig
from jaxnlp.models.vit import ViTConfig
from jaxnlp.targets import Number, OneClass
from jaxnlp.tasks import Trained
from jaxnlp.tasks.classification import Classification
from jaxnlp.tasks.extractive_qa import ExtractiveQA
from jaxnlp.tasks.image_language_model import ImageLanguageModel
from jaxnlp.tasks.image_text_similarity import ImageTextSimilarity
from jaxnlp.tasks.image_text_similarity.processor import ImageTextProcessor
from jaxnlp.tasks.language_model import LanguageModel, RecurrentLanguageModel
from jaxnlp.tasks.masked_language_model import MaskedLanguageModel
from jaxnlp.tasks.parsing import Parsing
from jaxnlp.tasks.question_answering import QuestionAnswering
from jaxnlp.tasks.tagging import Tagging
from jaxnlp.tasks.text_to_text import TextToText
from jaxnlp.tasks.translation import Translation
from jaxnlp.text.characters import CharacterVocabulary
from jaxnlp.text.classifier_processor import TextClassifierProcessor, TextPart, one_part
from jaxnlp.text.parser_processor import ParserProcessor
from jaxnlp.text.question_contexts import QuestionProcessor
from jaxnlp.text.subword_training import train_subwords
from jaxnlp.text.tagger_processor import TaggerProcessor
from jaxnlp.text.translation import TranslationProcessor
from jaxnlp.text.word_inputs import WordInputs
from jaxnlp.text.wordpiece import SPECIAL, WordPieceVocabulary
from tests.random_parameters import random_parameters

PIECES = WordPieceVocabulary.of_pieces([*SPECIAL, "the", "dog", "##s", "see", "rome", ".", "who", "?"])
BERT = BertConfig(num_layers=2, num_heads=2, width=8, max_positions=16)
CLASSES = OneClass(("arts", "sport", "world"))
TEXTS = TextClassifierProcessor(PIECES, 16, one_part(CLASSES))
PARTS = (("topic", TextPart(CLASSES)), ("similar", TextPart(Number(0.0, 5.0), 2)))
INPUTS = WordInputs.of_sentences([("the", "dogs", "see", "rome")], pieces=PIECES, max_pieces=16, max_characters=6)
TAGGER = TaggerProcessor(INPUTS, ("O", "B-X", "I-X"), "bio")
TAGS = dataclasses.replace(TAGGER, labels=(), scheme="none", parts=(("upos", ("A", "B")), ("feats", ("_", "C", "D"))))
PARSER = ParserProcessor(INPUTS, ("DET", "NOUN"), ("root", "det", "obj"))
WORDS = train_subwords(["one two three four five"], "words", 50, minimum_count=1)
PAIRS = TranslationProcessor(WORDS, WORDS)
CHARACTERS = CharacterVocabulary.of("abcdefgh")
GPT = {"num_heads": 2, "width": 8, "context_length": 16}
MODELS = {
    "bert": (Classification, BertClassifierConfig(encoder=BERT), TEXTS),
    "parts": (
        Classification,
        BertClassifierConfig(encoder=BERT, pooling="mean", similarity="cosine"),
        TextClassifierProcessor(PIECES, 16, PARTS, "apart"),
    ),
    "cnn": (Classification, TextCNNConfig(embedding_width=8), TEXTS),
    "rnn": (Classification, TextRNNConfig(embedding_width=8, widths=(8,), pooling="attention"), TEXTS),
    "vit": (
        Classification,
        ViTConfig(num_layers=2, num_heads=2, width=8, patch=2),
        ImageProcessor(4, 1, (0.5,), (0.5,), CLASSES.names),
    ),
    "crf": (Tagging, TaggerConfig(word_width=8, character_features=4, recurrent_widths=(8,)), TAGGER),
    "tags": (Tagging, TaggerConfig(word_width=8, character_features=4, recurrent_widths=(8,)), TAGS),
    "bert_tagger": (Tagging, TaggerConfig(bert=True, encoder=BERT, crf=False, recurrent_widths=()), TAGGER),
    "parser": (Parsing, FeedForwardParserConfig(hidden_width=8, word_width=8), PARSER),
    "bert_parser": (Parsing, RecurrentParserConfig(bert=True, encoder=BERT, recurrent_widths=(8,)), PARSER),
    "graph_parser": (
        Parsing,
        GraphParserConfig(word_width=8, character_features=4, recurrent_widths=(8,), arc_width=8, relation_width=8),
        dataclasses.replace(PARSER, system="graph"),
    ),
    "gpt": (LanguageModel, GPTConfig(num_layers=2, **GPT), CHARACTERS),
    "llama": (
        LanguageModel,
        LlamaConfig(num_layers=2, num_key_heads=1, local_layers=(1,), local_window=4, **GPT),
        CHARACTERS,
    ),
    "decoder_classifier": (Classification, LlamaClassifierConfig(num_layers=2, **GPT), TEXTS),
    "pixels": (
        ImageLanguageModel,
        GPTConfig(num_layers=1, **GPT),
        Palette(ImageProcessor(4, 1, (0.5,), (0.5,), ()), tuple((v,) for v in range(8))),
    ),
    "perceiver": (QuestionAnswering, PerceiverConfig(num_layers=3, num_latents=4, **GPT), CHARACTERS),
    "synthesizer": (QuestionAnswering, SynthesizerConfig(num_layers=2, **GPT), CHARACTERS),
    "lstm": (RecurrentLanguageModel, RecurrentLMConfig(embedding_width=8, widths=(8, 8)), CHARACTERS),
    "gru": (RecurrentLanguageModel, RecurrentLMConfig(cell="gru", embedding_width=8, widths=(8,)), CHARACTERS),
    "transformer": (Translation, EncoderDecoderConfig(num_layers=2, num_heads=2, width=8, context_length=16), PAIRS),
    "attention": (TextToText, AttentionLSTMConfig(embedding_width=8, width=8), PAIRS),
    "spans": (ExtractiveQA, BertSpanConfig(encoder=BERT), QuestionProcessor(PIECES, 16, 4)),
    "recurrent_spans": (
        ExtractiveQA,
        RecurrentSpanConfig(embedding_width=8, widths=(8,)),
        QuestionProcessor(PIECES, 16, 4),
    ),
    "clip": (
        ImageTextSimilarity,
        CLIPConfig(
            TextEncoderConfig(num_layers=2, projection_width=4, end_id=3, **GPT),
            ViTConfig(num_layers=2, num_heads=2, width=8, patch=2, projection_width=4, embedding_norm=True),
        ),
        ImageTextProcessor(PIECES, 16, ImageProcessor(4, 1, (0.5,), (0.5,), ())),
    ),
    "pretraining": (MaskedLanguageModel, BertPretrainingConfig(encoder=BERT), PIECES),
}
"""Of each family its task, its config and its processor."""


@functools.cache
def trained_of(name: str) -> Trained:
    """The model of a family, with random parameters."""
    task, config, processor = MODELS[name]
    config.check(processor)
    model = config.build(processor)
    params = random_parameters(model, *config.inputs(processor))
    return Trained(task(), model, jax.device_put(params), processor, name=name)
