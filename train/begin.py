"""What a run begins with: its config with a pretrained model's shape in it, given parameters, a processor."""

import dataclasses
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
from flax.traverse_util import flatten_dict, unflatten_dict

from jaxnlp.checkpoints import PROCESSOR_FILE, DamagedCheckpointError, RunError, array_bytes, checkpoint_steps
from jaxnlp.models import ModelConfig
from jaxnlp.runs import is_run, load
from jaxnlp.serialization import ConfigError, differences, processor_from_json, to_json
from jaxnlp.typing import Params
from train import run_folder
from train.config import TrainConfig
from train.recipes import UnknownRecipeError, load_recipe

TYPED_MODEL_FILE = "typed_model.json"
"""The model's config as it was typed, where pretrained weights have changed it: a later start types the same again."""


class Beginning(NamedTuple):
    """A run's config, and what it begins with.

    Attributes:
      config: with the pretrained model's shape in it.
      params: the given parameters, at their places; all others are initialised at random. {} where a run continues.
      processor: the pretrained model's; None = the data set makes its own.
      digest: SHA-256 of the given parameters; None = there are none.
      notes: lines for the person who starts the run.
      typed_model: the model's config as JSON as it was typed, where it is another one.
      params_for: from the data's processor to further given parameters; None = no more.
    """

    config: TrainConfig
    params: Params
    processor: Any = None
    digest: str | None = None
    notes: tuple[str, ...] = ()
    typed_model: Any = None
    params_for: Callable[[Any], Params] | None = None


def begin(config: TrainConfig, workdir: Path | None = None) -> Beginning:
    """Finds what a config's model begins with.

    Args:
      config: as it was typed.
      workdir: the run's folder. One that holds checkpoints has all that is needed: what the run began with may be gone.

    Raises:
      ConfigError: when the model's fields do not fit the pretrained weights.
      RunError, DamagedCheckpointError: when these are not there, cannot be read, or are of another model.
      DataError: when the data would be validated on examples that the earlier run was trained on.
    """
    if config.init_from is None:
        return Beginning(config, {})
    if workdir is not None and checkpoint_steps(workdir):
        return _continued(config, workdir)
    place = config.init_from
    try:
        found = load(place, checkpoint="latest" if is_run(place) else "best", ignore=config.init_ignore)
        adopted = config.model.adopt(found)
        _refuse_overridden(config, adopted.config)
        whole = dataclasses.replace(config, model=adopted.config)
    except (ConfigError, DamagedCheckpointError):
        raise
    except ValueError as error:
        raise RunError(f"--init-from {place}: {error}") from error
    if is_run(place):
        config.data.check_after(run_folder.read_config(Path(place)).data)
    typed = to_json(config.model)
    return Beginning(
        whole,
        params=adopted.params,
        processor=adopted.processor,
        digest=params_digest(adopted.params),
        notes=adopted.notes,
        typed_model=typed if typed != to_json(adopted.config) else None,
        params_for=adopted.params_for,
    )


def _refuse_overridden(config: TrainConfig, adopted: ModelConfig) -> None:
    """Raises ConfigError for a field that was typed, and that the pretrained model has otherwise."""
    try:
        recipe = to_json(load_recipe(config.recipe).model)
    except UnknownRecipeError:  # a config that no recipe has made: what differs from the defaults was typed
        recipe = to_json(config.model)
        for field in dataclasses.fields(config.model):
            if field.default_factory is not dataclasses.MISSING:
                recipe[field.name] = to_json(field.default_factory())
            elif field.default is not dataclasses.MISSING:
                recipe[field.name] = to_json(field.default)
    model = to_json(config.model)
    typed = {line.partition(":")[0] for line in differences(recipe, model)}
    lost = [line for line in differences(model, to_json(adopted)) if line.partition(":")[0] in typed]
    if lost:
        lines = "".join(f"\n  model.{line}" for line in lost)
        raise ConfigError(f"--init-from {config.init_from} defines these fields; remove them:{lines}")


def _continued(config: TrainConfig, workdir: Path) -> Beginning:
    """The run has its parameters; what its model and processor are stands in its folder."""
    processor = processor_from_json(run_folder.read_json(workdir / PROCESSOR_FILE))
    typed = workdir / TYPED_MODEL_FILE
    if not typed.is_file():
        return Beginning(config, {}, processor)
    before = run_folder.read_json(typed)
    now = to_json(config.model)
    if run_folder.identity({"model": before}) != run_folder.identity({"model": now}):
        return Beginning(config, {}, processor)  # the folder's check names the differences
    held = run_folder.read_config(workdir).model
    model: ModelConfig = dataclasses.replace(held, compute=config.model.compute)
    return Beginning(dataclasses.replace(config, model=model), {}, processor, typed_model=before)


def merge(params: Params, given: Params) -> Params:
    """The parameters, with those that are given in their places.

    Raises: RunError naming a given parameter that the model does not have, or has in another shape.
    """
    ours, theirs = flatten_dict(params), flatten_dict(given)
    for path, value in theirs.items():
        name = "/".join(path)
        if path not in ours:
            raise RunError(f"a value is given for the parameter {name}, and the model has no such parameter")
        if ours[path].shape != value.shape:
            raise RunError(
                f"the parameter {name} has the shape {tuple(ours[path].shape)}, and its given value {value.shape}"
            )
    return unflatten_dict(ours | theirs)


def overlaid(params: Params, newer: Params) -> Params:
    """Both parameters; where both have one, the newer."""
    return unflatten_dict(flatten_dict(params) | flatten_dict(newer))


def params_digest(params: Params) -> str:
    """SHA-256 of parameters: names, shapes, types and values."""
    found = hashlib.sha256()
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        found.update(f"{jax.tree_util.keystr(path)} {leaf.shape} {leaf.dtype}\n".encode())
        found.update(array_bytes(leaf).data)
    return found.hexdigest()
