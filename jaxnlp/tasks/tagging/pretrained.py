"""Taggers of Transformers."""

import dataclasses
from pathlib import Path

from jaxnlp.convert import PretrainedError, pretrained_types, read_pretrained
from jaxnlp.convert.folders import adapted_class, find_folder, read_object
from jaxnlp.convert.pretrained_encoder import CONFIG, OF_TOKENS
from jaxnlp.convert.shapes import class_names
from jaxnlp.corpus import errors_as
from jaxnlp.models.tagger import HEAD, TaggerConfig
from jaxnlp.models.word_encoder import NAME, WordEncoderCompute
from jaxnlp.nn.compute import EXACT
from jaxnlp.tasks import Task, Trained, pretrained_model
from jaxnlp.tasks.bert_verbs.exported import ExportedHead, read_head
from jaxnlp.text.tag_schemes import scheme_of
from jaxnlp.text.tagger_processor import TaggerProcessor
from jaxnlp.text.word_inputs import WordInputs

CLASSES = OF_TOKENS.classes()
"""The families, by their classes for tagging in Transformers."""


def tagger_of_transformers(task: Task, path: str | Path) -> Trained:
    """A tagger that Transformers trained, with its labels. A word has the scores of its first token.

    Raises: PretrainedError, WeightsError as `read_pretrained`; also for labels that do not fit the head.
    """
    (kind, *_), folder = pretrained_types(path), find_folder(path)
    family = CLASSES[kind]
    pretrained = read_pretrained(path, ignore=(OF_TOKENS.prefix,))
    settings = read_object(folder / CONFIG)
    head = read_head(path, ExportedHead(HEAD, OF_TOKENS.prefix))
    longest = pretrained.longest
    inputs = WordInputs((), (), pretrained.vocabulary, max_length=longest, max_pieces=longest)
    with errors_as(PretrainedError, folder / CONFIG):
        adapted = adapted_class(str(path)) is not None
        labels = class_names(settings, head[HEAD]["bias"].size, adapted=adapted)
        processor = TaggerProcessor(inputs, labels, scheme_of(labels))
    rate = settings.get(family.dropout.get(OF_TOKENS.name, "dropout"))
    config = TaggerConfig(
        encoder=pretrained.config.of_tokens(),
        bert=True,
        word_width=0,
        character_features=0,
        recurrent_widths=(),
        crf=False,
        input_dropout_rate=pretrained.config.dropout_rate if rate is None else rate,
        compute=WordEncoderCompute(**dataclasses.asdict(EXACT)),
    )
    return pretrained_model(task, config, {NAME: {"bert": pretrained.params}} | head, processor, str(path))
