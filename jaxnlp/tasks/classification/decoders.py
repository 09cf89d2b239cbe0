"""Classifiers of texts of Transformers with a decoder, such as GPT2ForSequenceClassification, in and out."""

import dataclasses
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxnlp.convert import PretrainedError
from jaxnlp.convert.decoders import families
from jaxnlp.convert.folders import CONFIG, adapted_class, find_folder, read_object, read_tensors
from jaxnlp.convert.pretrained_decoder import (
    CLASSIFIER_HEAD,
    DecoderHead,
    PretrainedDecoder,
    read_decoder,
    save_decoder,
)
from jaxnlp.convert.sentence_transformers import tokenizer_max_length
from jaxnlp.convert.tensors import WeightsError
from jaxnlp.models.classifier import HEAD
from jaxnlp.models.decoder_classifier import DECODER, DecoderClassifierConfig, classifier_of
from jaxnlp.tasks import Task, Trained, pretrained_model
from jaxnlp.tasks.classification.pretrained import targets_of
from jaxnlp.text.byte_pairs import BytePairs
from jaxnlp.text.classifier_processor import TextClassifierProcessor, one_part


def decoder_classes() -> tuple[str, ...]:
    """The names of the classes in Transformers."""
    return tuple(family.classifier for family in families().values())


def decoder_classifier_of_transformers(task: Task, path: str | Path) -> Trained:
    """A classifier that Transformers trained, with the names of its classes, or of a number.

    Raises: PretrainedError, WeightsError as `read_decoder`; also for names that do not fit the head, and for several
    numbers.
    """
    pretrained = read_decoder(path, ignore=(CLASSIFIER_HEAD,), output_layer=False)
    folder = find_folder(path)
    settings, name = read_object(folder / CONFIG), f"{CLASSIFIER_HEAD}weight"
    tensors = read_tensors(folder, str(path))
    if name not in tensors:
        raise PretrainedError(f"{path}: the weights do not have the tensor {name}")
    kernel = np.ascontiguousarray(np.asarray(tensors[name], np.float32).T)
    padding, size = settings.get("pad_token_id"), len(pretrained.params["tokens"]["embedding"])
    try:
        targets = targets_of(settings, kernel.shape[-1], adapted=adapted_class(str(path)) is not None)
        if padding is not None and not (type(padding) is int and 0 <= padding < size):
            raise ValueError(f"pad_token_id must be the id of a token or null, got {padding!r}")
    except ValueError as error:
        remedy = f"with --ignore {CLASSIFIER_HEAD} or ignore=({CLASSIFIER_HEAD!r},) it is read as a language model"
        raise PretrainedError(f"{folder / CONFIG}: {error}; {remedy}") from error
    config = classifier_of(pretrained.config, padding_id=padding)
    most = config.context_length
    processor = TextClassifierProcessor(
        pretrained.vocabulary.of_whole_texts(),
        tokenizer_max_length(folder, most) or most,
        one_part(targets),
        "optional",
    )
    params = {DECODER: pretrained.params, HEAD: {"kernel": kernel}}
    return pretrained_model(task, config, params, processor, str(path))


def save_decoder_classifier(folder: Path, trained: Trained) -> str:
    """Writes a classifier with a decoder as a folder that Transformers reads. Returns: its class in Transformers.

    Raises: OSError; WeightsError as `save_decoder`, and for numbers on a scale that does not start at 0.
    """
    config: Any = trained.model.config
    assert isinstance(config, DecoderClassifierConfig)
    processor, params = trained.processor, jax.tree.map(np.asarray, dict(trained.params))
    targets = processor.targets
    if targets.lowest:
        raise WeightsError(
            f"a class of Transformers has no bias to predict numbers from {targets.lowest:g} on; train on labels whose "
            "scale begins at 0, or give --format jax"
        )
    if targets.sigmoid:
        raise WeightsError("a class of Transformers has no sigmoid after its output; give --format jax")
    special = processor.vocabulary.special
    named = {"bos_token": special.cls, "eos_token": special.sep, "unk_token": special.unk}
    if config.padding_id is not None:
        named["pad_token"] = next(iter(processor.vocabulary.tokens([config.padding_id])))
    vocabulary = BytePairs.of_whole(processor.vocabulary, named)
    head = DecoderHead(targets.width * params[HEAD]["kernel"], targets.names or ("number",), targets.problem)
    decoder = dataclasses.replace(config.decoder, tie_embeddings=True)
    return save_decoder(
        folder, PretrainedDecoder(decoder, params[DECODER], vocabulary), head=head, max_length=processor.max_length
    )
