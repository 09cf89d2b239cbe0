"""What a run begins with when its model is pretrained: an encoder's shape, its parameters, and how texts are cut."""

import dataclasses
import hashlib
import logging
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np

from data import Corpus
from jaxnlp.convert.bert import WeightsError
from jaxnlp.convert.pretrained import PretrainedError, load_pretrained
from jaxnlp.models.bert import BertConfig, BertModelConfig
from jaxnlp.models.bert_pretraining import BertPretrainingConfig
from jaxnlp.runs import CONFIG_FILE, VOCABULARY_FILE, RunError, checkpoint_steps
from jaxnlp.serialization import ConfigError
from jaxnlp.text.vocabulary import Vocabulary
from jaxnlp.text.wordpiece import WordPieceVocabulary
from jaxnlp.typing import Params
from train import folder
from train.command_line import UsageError, load_recipe
from train.config import TrainConfig, check_positions

OWN_FIELDS = ("dropout_rate", "attention_dropout_rate")
"""Of an encoder's config: what a run chooses for itself. All else is as the pretrained one has it."""


_PRETRAINING_HEADS = {"token_bias": "the head of masked tokens", "follows": "the head of next sentences"}
_logger = logging.getLogger(__name__)


class Beginning(NamedTuple):
    """A run's config, and what it begins with.

    Attributes:
      config: with the encoder's shape in it.
      vocabulary: how its texts are cut; None = as the data says.
      params: those of the model's parameters that are given, at their places; all others are random.
      digest: SHA-256 of the given parameters; None = there are none.
    """

    config: TrainConfig
    vocabulary: Vocabulary | None
    params: Params
    digest: str | None = None


def beginning(config: TrainConfig, workdir: Path | None = None) -> Beginning:
    """Finds what a config's model begins with.

    Args:
      config: as it was typed.
      workdir: the run's folder. One that holds checkpoints of this run has all that is needed: what was pretrained may
        be gone by then.

    Raises:
      ConfigError: when the model's fields do not fit the encoder.
      RunError: when there is no such encoder, or it cannot be read.
    """
    if not isinstance(config.model, BertModelConfig) or config.model.pretrained is None:
        return Beginning(config, None, {})
    name = config.model.pretrained
    if workdir is not None and (workdir / CONFIG_FILE).is_file() and checkpoint_steps(workdir):
        held = folder.read_config(workdir)
        if isinstance(held.model, BertModelConfig) and held.model.pretrained == name:
            vocabulary = WordPieceVocabulary.load(workdir / VOCABULARY_FILE)
            return Beginning(_with_encoder(config, config.model, held.model.encoder), vocabulary, {})
    try:
        found = load_pretrained(name, ignore=config.model.pretrained_ignore)
    except (PretrainedError, WeightsError) as error:
        raise RunError(f"--model.pretrained: {error}") from error
    params, encoder = {"encoder": found.params}, found.config
    if isinstance(config.model, BertPretrainingConfig):
        params["heads"] = found.heads or {}
        lacking = [name for name in ("token_bias", "follows") if name not in params["heads"]]
        parts = ["the pooler"] * (not encoder.use_pooler) + [_PRETRAINING_HEADS[name] for name in lacking]
        if parts:
            _logger.warning("%s has not, so that it begins at random: %s", name, ", ".join(parts))
        encoder = dataclasses.replace(encoder, use_pooler=True)
    whole = _with_encoder(config, config.model, encoder)
    return Beginning(whole, found.vocabulary, params, digest(params))


def load_data(config: TrainConfig, vocabulary: Vocabulary | None) -> Corpus:
    """A run's data, in the vocabulary that its pretrained model brings, where it is one."""
    brings = isinstance(config.model, BertModelConfig) and config.model.pretrained is not None
    if not brings or vocabulary is None:
        return config.data.load(config.seed)
    return config.data.load_with(config.seed, vocabulary)


def digest(params: Params) -> str:
    """SHA-256 of parameters: names, shapes, types and values."""
    found = hashlib.sha256()
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        leaf = np.ascontiguousarray(leaf)
        found.update(f"{jax.tree_util.keystr(path)} {leaf.shape} {leaf.dtype}\n".encode())
        found.update(leaf.data)
    return found.hexdigest()


def given_shape(config: TrainConfig) -> str | None:
    """That of the encoder, in words, where it was given; None = it was not."""
    model = config.model
    if not isinstance(model, BertModelConfig) or model.pretrained is None:
        return None
    encoder = model.encoder
    return (
        f"encoder from {model.pretrained}: {encoder.num_layers} layers, {encoder.width} wide, {encoder.num_heads} heads"
    )


def _encoder_of_recipe(recipe: str) -> BertConfig:
    """The encoder that a recipe has where nobody typed another."""
    try:
        model = load_recipe(recipe).model
    except UsageError:  # a config that was made by hand
        return BertConfig()
    return model.encoder if isinstance(model, BertModelConfig) else BertConfig()


def _with_encoder(config: TrainConfig, model: BertModelConfig, encoder: BertConfig) -> TrainConfig:
    own = {name: getattr(model.encoder, name) for name in OWN_FIELDS}
    recipes = _encoder_of_recipe(config.recipe)
    typed = [
        f"model.encoder.{field.name} {getattr(model.encoder, field.name)}, where it has {getattr(encoder, field.name)}"
        for field in dataclasses.fields(encoder)
        if field.name not in OWN_FIELDS
        and getattr(model.encoder, field.name) not in (getattr(recipes, field.name), getattr(encoder, field.name))
    ]
    if typed:
        raise ConfigError(f"{model.pretrained} says what its encoder is; leave out {'; '.join(typed)}")
    try:
        whole = dataclasses.replace(model, encoder=dataclasses.replace(encoder, **own))
        check_positions(config.data, whole.encoder)
        return dataclasses.replace(config, model=whole)
    except ValueError as error:
        raise ConfigError(f"{model.pretrained} does not fit this run: {error}") from error
