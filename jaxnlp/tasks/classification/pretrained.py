"""Weights of Transformers and sentence-transformers as models of classification: classifiers of texts, and encoders."""

import dataclasses
from pathlib import Path
from typing import Any, get_args

from jaxnlp.convert import PretrainedError, read_pretrained
from jaxnlp.convert.encoders import EncoderFamily
from jaxnlp.convert.folders import adapted_class, find_folder, read_object
from jaxnlp.convert.pretrained_encoder import CONFIG, OF_TEXTS
from jaxnlp.convert.sentence_transformers import encoder_folder, score_activation
from jaxnlp.convert.shapes import class_names, distinct
from jaxnlp.models.bert_classifier import BertClassifierConfig
from jaxnlp.models.text_vectors import Pooling
from jaxnlp.nn.compute import EXACT
from jaxnlp.targets import AnyNumber, Number, OneClass, SeveralClasses, Targets
from jaxnlp.tasks import Task, Trained, pretrained_model
from jaxnlp.tasks.bert_verbs.exported import ExportedHead, read_head
from jaxnlp.text.classifier_processor import TextClassifierProcessor, TextPart, one_part

SIMILARITY = "similarity"
"""The part of a pretrained encoder: the cosine similarity of texts."""
HEAD = "head"


def classifier_of_transformers(task: Task, path: str | Path, family: EncoderFamily) -> Trained:
    """A classifier that Transformers trained, with the names of its classes, or of a number.

    It reads single texts and pairs, since no file says which: a cross-encoder of sentence-transformers scores pairs.

    Raises: PretrainedError, WeightsError as `read_pretrained`; also for names that do not fit the head, and for several
      numbers.
    """
    pretrained = read_pretrained(path, ignore=(family.classifier,))
    file = encoder_folder(find_folder(path)) / CONFIG
    settings = read_object(file)
    head = read_head(path, ExportedHead(HEAD, family.classifier))
    try:
        if not pretrained.config.pools:
            raise ValueError("the weights have no pooler, which the head reads")
        targets = targets_of(settings, head[HEAD]["bias"].size, adapted=adapted_class(str(path)) is not None)
        if pretrained.embeddings.prompt:
            raise ValueError(f"a prompt before each text is not supported: {pretrained.embeddings.prompt!r}")
        if isinstance(targets, AnyNumber):
            activation = score_activation(find_folder(path), settings) or "Identity"
            if activation not in ("Identity", "Sigmoid"):
                raise ValueError(f"the activation of its scores is {activation}, expected Identity or Sigmoid")
            targets = AnyNumber(sigmoid=activation == "Sigmoid")
    except ValueError as error:
        remedy = f"with --ignore {family.classifier} or ignore=({family.classifier!r},) it is read as an encoder"
        raise PretrainedError(f"{file}: {error}; {remedy}") from error
    rate = settings.get(family.dropout[OF_TEXTS.name])
    config = BertClassifierConfig(
        encoder=pretrained.config,
        pooling="pooler",
        head_dropout_rate=pretrained.config.dropout_rate if rate is None else rate,
        compute=EXACT,
    )
    pairs = config.encoder.has_segments(pretrained.vocabulary.num_segments)
    processor = TextClassifierProcessor(
        pretrained.vocabulary, pretrained.longest, one_part(targets), "optional" if pairs else "together"
    )
    return pretrained_model(task, config, {"encoder": pretrained.params} | head, processor, str(path))


def targets_of(settings: dict[str, Any], outputs: int, *, adapted: bool = False) -> Targets:
    """The targets of a head of Transformers. Args: adapted: as for `class_names`.

    Raises: ValueError for names that do not fit its outputs.
    """
    problem = settings.get("problem_type") or (OneClass.problem if outputs > 1 else Number.problem)
    if problem == Number.problem and outputs > 1:
        raise ValueError(f"it predicts {outputs} numbers, expected one")
    if problem == Number.problem:
        return AnyNumber()
    kind = SeveralClasses if problem == SeveralClasses.problem else OneClass
    return kind(distinct(class_names(settings, outputs, adapted=adapted)))


def encoder_of_similarity(task: Task, path: str | Path, *, ignore: tuple[str, ...] = ()) -> Trained:
    """An encoder of Transformers or sentence-transformers: similarity by the cosine of the texts' vectors.

    Raises: PretrainedError, WeightsError as `read_pretrained`; also for unsupported modules of sentence-transformers
    after the pooling.
    """
    pretrained = read_pretrained(path, ignore=ignore)
    others = [kind for kind in pretrained.modules_after_pooling if kind != "Normalize"]
    pooling: Any = pretrained.pooling or "mean"
    if others or pooling not in get_args(Pooling):
        what = ", ".join(others) or f"pooling {pooling}"
        known = f"expected at most Normalize, after pooling {', '.join(get_args(Pooling))}"
        raise PretrainedError(f"{path} computes embeddings with {what}, which is not supported; {known}")
    processor = TextClassifierProcessor(
        pretrained.vocabulary,
        pretrained.longest,
        ((SIMILARITY, TextPart(Number(0.0, 1.0), 2)),),
        "apart",
        dataclasses.replace(pretrained.embeddings, normalize="Normalize" in pretrained.modules_after_pooling),
    )
    config = BertClassifierConfig(encoder=pretrained.config, pooling=pooling, similarity="cosine", compute=EXACT)
    params = {"encoder": pretrained.params} | ({} if pretrained.heads is None else {"heads": pretrained.heads})
    return pretrained_model(task, config, params, processor, str(path))
