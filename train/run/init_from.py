"""The start of a run: shape, parameters and processor of pretrained weights."""

import dataclasses
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax

from data import DataConfig
from jaxnlp.convert import with_new_tokens
from jaxnlp.corpus import DataError
from jaxnlp.models import ModelConfig
from jaxnlp.runs import is_run, load
from jaxnlp.saving.checkpoint_reading import PROCESSOR_FILE, DamagedCheckpointError, RunError, checkpoint_steps
from jaxnlp.saving.checksums import array_bytes
from jaxnlp.saving.serialization import ConfigError, differences, from_json, processor_from_json, to_json
from jaxnlp.typing import Params
from train.config import TrainConfig
from train.recipes import UnknownRecipeError, recipe_of
from train.run import folder as run_folder


class Initialisation(NamedTuple):
    """A run's config, and the parts of pretrained weights that it uses. `train.run.setup` puts them into the state.

    Attributes:
      config: the config, with the shape of the pretrained model.
      params: pretrained parameters, by path; others are initialised at random. {} if a run continues.
      processor: the pretrained model's processor; None = the data set makes its own.
      digest: SHA-256 of `params`; if there are `matching_heads`, of all parameters of the pretrained model. None = the
        run continues, or starts without pretrained parameters.
      notes: messages for the user.
      typed_model: the model's config as the user gave it, as JSON, if pretrained weights have changed it.
      matching_heads: the pretrained heads that fit the data's processor; None = no heads.
      continues: whether the run has a checkpoint, so that nothing is initialised.
    """

    config: TrainConfig
    params: Params
    processor: Any = None
    digest: str | None = None
    notes: tuple[str, ...] = ()
    typed_model: Any = None
    matching_heads: Callable[[Any], Params] | None = None
    continues: bool = False


def begin(config: TrainConfig, workdir: Path | None = None) -> Initialisation:
    """Reads the pretrained weights that a config names.

    Args:
      config: the config, as the user gave it.
      workdir: the run's folder, after `check_folder`. With checkpoints it has the model's shape, and the pretrained
        weights, which may have been deleted, are not read.

    Raises:
      ConfigError: when the model's fields do not fit the pretrained weights.
      RunError, DamagedCheckpointError: when the weights are missing, cannot be read, or belong to another model.
      DataError: when the validation split contains examples that the earlier run was trained on.
    """
    continues = workdir is not None and bool(checkpoint_steps(workdir))
    if config.init_from is None:
        return Initialisation(config, {}, continues=continues)
    if workdir is not None and continues:
        held = run_folder.read_config(workdir).model
        model: ModelConfig = dataclasses.replace(held, compute=config.model.compute)
        processor = processor_from_json(run_folder.read_json(workdir / PROCESSOR_FILE))
        return Initialisation(dataclasses.replace(config, model=model), {}, processor, continues=True)
    name = config.init_from
    try:
        source = load(name, checkpoint="latest" if is_run(name) else "best", ignore=config.init_ignore)
        if is_run(name):
            earlier = from_json(source.config["data"], DataConfig, where="config.data")
            config.data.check_after(earlier)
        adopted = config.model.adopt(source)
        digest = params_digest(adopted.params if adopted.matching_heads is None else source.params)
        _refuse_overridden(config, adopted.config)
        if adopted.processor is not None:
            _refuse_unread(config)
        if config.init_new_tokens:
            frozen = config.optimizer.freezes
            adopted = with_new_tokens(adopted, config.init_new_tokens, seed=config.seed, frozen=frozen)
        return Initialisation(
            dataclasses.replace(config, model=adopted.config),
            params=adopted.params,
            processor=adopted.processor,
            digest=digest,
            notes=adopted.notes,
            typed_model=to_json(config.model) if config.model != adopted.config else None,
            matching_heads=adopted.matching_heads,
        )
    except (ConfigError, DamagedCheckpointError, DataError):
        raise
    except ValueError as error:
        where = "--init-from" if str(name) in str(error) else f"--init-from {name}"
        raise RunError(f"{where}: {error}") from error


def _refuse_overridden(config: TrainConfig, adopted: ModelConfig) -> None:
    """Raises ConfigError for a field that the user set to a value other than the pretrained model's."""
    typed = _typed(config, "model")
    lost = [line for line in differences(config.model, adopted) if line.partition(":")[0] in typed]
    if lost:
        lines = "".join(f"\n  model.{line}" for line in lost)
        raise ConfigError(f"--init-from {config.init_from} sets these fields of the model; remove them:{lines}")


def _refuse_unread(config: TrainConfig) -> None:
    """Raises ConfigError for a field that the user set, but that a given processor makes unused."""
    typed = _typed(config, "data")
    unread = [f"data.{name}" for name in config.data.processor_fields if name in typed]
    if unread:
        raise ConfigError(f"--init-from {config.init_from} has a tokenizer; remove {', '.join(unread)}")


def _typed(config: TrainConfig, section: str) -> set[str]:
    """The fields of a section, such as `model`, in which a config differs from its recipe, or else from the
    defaults."""
    part: Any = getattr(config, section)
    recipe: Any
    try:
        recipe = getattr(recipe_of(config), section)
    except UnknownRecipeError:
        fields, missing = dataclasses.fields(part), dataclasses.MISSING
        made = {f.name: f.default if f.default_factory is missing else f.default_factory() for f in fields}
        recipe = to_json(part) | {name: to_json(value) for name, value in made.items() if value is not missing}
    return {line.partition(":")[0] for line in differences(recipe, part)}


def params_digest(params: Params) -> str:
    """SHA-256 of the paths, shapes, types and values of parameters."""
    digest = hashlib.sha256()
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        digest.update(f"{jax.tree_util.keystr(path)} {leaf.shape} {leaf.dtype}\n".encode())
        digest.update(array_bytes(leaf).data)
    return digest.hexdigest()
