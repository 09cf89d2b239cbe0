"""Loading trained models from a run's folder, a folder of pretrained weights, or the Hugging Face Hub."""

import functools
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import jax

from jaxnlp.convert import PretrainedError, exported_task, has_weights, is_pretrained, pretrained_types
from jaxnlp.inference.caches import use_compilation_cache
from jaxnlp.input_files.json_objects import parse_json
from jaxnlp.input_files.web_addresses import absence, is_web_address
from jaxnlp.models import ModelConfig, parameter_shapes
from jaxnlp.saving.checkpoint_reading import (
    CHECKPOINTS,
    CONFIG_FILE,
    PROCESSOR_FILE,
    Record,
    RunError,
    read_checkpoint,
    read_params,
    read_run_files,
)
from jaxnlp.saving.serialization import ConfigError, from_json, on_any_machine, processor_from_json
from jaxnlp.saving.serialization import trust as trust_package
from jaxnlp.tasks import Task, Trained, every_task
from jaxnlp.typing import Params

Checkpoint = int | Literal["best", "latest"]
MAX_RUNS_SHOWN = 20
"""Maximum number of runs that a message names."""


def load(path: str | Path, *, checkpoint: Checkpoint = "best", ignore: Sequence[str] = ()) -> Trained:
    """Loads a trained model.

    Args:
      path: a run's folder, a folder of pretrained weights, or a name on the Hugging Face Hub.
      checkpoint: a step, the latest, or the best on the validation split; of runs only.
      ignore: names, or their prefixes, of pretrained tensors to ignore.

    Raises:
      RunError, DamagedCheckpointError: for a run that cannot be read or does not have the checkpoint.
      ValueError: for any other path, an unknown model, `checkpoint` for pretrained weights, or `ignore` for a run.
    """
    if is_run(path):
        if ignore:
            raise ValueError(f"{path} is a training run, which has no tensors to ignore, got {', '.join(ignore)}")
        return load_run(path, checkpoint=checkpoint)
    if checkpoint != "best":
        raise ValueError(f"{path} is not a training run, so it has no checkpoint {checkpoint}")
    return load_pretrained(path, ignore=ignore)


def _on_one_device(model: ModelConfig, shapes: Params) -> Params:
    del model
    here = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=here), shapes)


def load_run(
    folder: str | Path,
    *,
    checkpoint: Checkpoint = "best",
    trust: Sequence[str] = (),
    laid_out: Callable[[ModelConfig, Params], Params] = _on_one_device,
) -> Trained:
    """Loads the trained model of a run's folder.

    Compiled programs are kept on disk: see `jaxnlp.inference.caches.use_compilation_cache`.

    Args:
      folder: the `--workdir` of `jaxnlp train`; it may have been moved.
      checkpoint: a step, the latest, or the best on the validation split; before any evaluation, the latest.
      trust: other packages or modules whose classes the run may name. Their code is imported, which runs it.
      laid_out: (config of the model, shape of each parameter) -> the shapes with shardings to read the parameters in;
        by default one device has all.

    Raises:
      RunError: when the folder is not a run, does not have the checkpoint, or its config or processor was edited.
      DamagedCheckpointError: when the checkpoint is damaged.
    """
    if isinstance(trust, str):
        raise ValueError(f"trust must be a list of packages, such as [{trust!r}]")
    for package in trust:
        trust_package(package)
    use_compilation_cache()
    require_path(folder, "the path of a run's folder", RunError)
    if is_web_address(folder):
        raise RunError(f"{folder} {absence(folder, 'folder of the run')}")
    folder = Path(folder).expanduser()
    read_config_json(folder)  # refuses other folders
    return read_checkpoint(folder, checkpoint, functools.partial(_trained, folder, laid_out))


def _trained(folder: Path, laid_out: Callable[[ModelConfig, Params], Params], record: Record) -> Trained:
    config, processor_json = read_run_files(folder, record)
    try:
        task = from_json(config["task"], Task, where="config.task")
        model_config = from_json(on_any_machine(config["model"]), ModelConfig, where="config.model")
        processor = processor_from_json(processor_json)
    except (ValueError, KeyError, TypeError) as error:
        raise RunError(f"the config or the processor of {folder} cannot be read: {error}") from error
    model = model_config.build(processor)
    shapes = parameter_shapes(model, *model_config.inputs(processor))
    return Trained(
        task=task,
        model=model,
        params=read_params(folder, record, laid_out(model_config, shapes)),
        processor=processor,
        name=config.get("recipe", folder.name),
        folder=folder,
        step=record.step,
        config=config,
    )


def load_pretrained(path: str | Path, *, ignore: Sequence[str] = ()) -> Trained:
    """Loads weights of another library, with the task of their model, or a model that was exported from a run.

    Args:
      path: a folder, or a name on the Hugging Face Hub, whose files are downloaded once.
      ignore: names, or their prefixes, of tensors to ignore. An exported model is then read without its heads, as
        weights of another library.

    Raises: ValueError for any other path, or an unknown model; RunError for a training run; OSError.
    """
    require_path(path, "the path of a folder, or a name on the Hugging Face Hub", PretrainedError)
    if is_run(path):
        raise RunError(f"{path} is a training run, not pretrained weights; load it with jaxnlp.load_run")
    use_compilation_cache()
    ignored = (ignore,) if isinstance(ignore, str) else tuple(ignore)
    return _pretrained_task(path, whole=not ignored).from_pretrained(path, ignore=ignored)


def _pretrained_task(path: str | Path, *, whole: bool = True) -> type[Task]:
    """The task of pretrained weights; for an exported model that is read whole, the task of its run.

    Raises: PretrainedError for an unknown model; ConfigError for an unknown task.
    """
    inside = runs_inside(Path(path).expanduser())
    if inside and not is_pretrained(path):
        raise RunError(f"{path} is not a training run{inside}")
    kinds = pretrained_types(path)[0 if whole else -1 :]
    exported = exported_task(path) if whole else None
    if exported is not None:
        return type(from_json(exported, Task, where=f"the task of {path}"))
    tasks: dict[str, type[Task]] = {}
    for task in every_task():
        for model_type in task.model_types:
            other = tasks.setdefault(model_type, task)
            if other is not task:
                raise TypeError(
                    f"{other.__name__} and {task.__name__} both claim weights of {model_type}; set "
                    "model_types to () in one of them"
                )
    known = [kind for kind in kinds if kind in tasks]
    if not known:
        types = ", ".join(sorted(name for name in tasks if name.islower()))  # the others are names of classes
        raise PretrainedError(f"{path}: model_type must be one of {types}, got {kinds[-1]!r}")
    return tasks[known[0]]


def find_task(path: str | Path, *, whole: bool = True) -> Task:
    """The task of a run or of pretrained weights, without reading parameters.

    Args:
      path: as for `load`.
      whole: whether no tensor is ignored; otherwise an exported model is read as weights of another library.

    Raises: RunError, ValueError, OSError as `load`.
    """
    if not is_run(path):
        return _pretrained_task(path, whole=whole)()
    try:
        return from_json(read_config_json(Path(path).expanduser())["task"], Task, where="config.task")
    except ConfigError as error:
        raise RunError(f"the config of {path} cannot be read: {error}") from error


def read_config_json(folder: Path) -> dict[str, Any]:
    """The config of a run's folder as JSON. Raises: RunError when the folder is not a run."""
    path = folder / CONFIG_FILE
    if not path.is_file():
        missing = "" if folder.exists() else ": there is no such folder"
        if folder.is_file():
            missing = ": it is a file; give the run's folder"
        raise RunError(f"{folder} is not a training run (no {CONFIG_FILE}){missing}{runs_inside(folder)}")
    try:
        config = parse_json(path.read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        raise RunError(f"the config of {folder} cannot be read: {error}") from error
    if isinstance(config, dict) and "model_type" in config:
        raise RunError(
            f"{folder} has pretrained weights, not a training run; load it with jaxnlp.load_pretrained, or train with "
            f"--init-from {folder}"
        )
    if not isinstance(config, dict) or not {"task", "model"} <= config.keys():
        raise RunError(f"{path} is not the config of a run: it does not have a task and a model")
    return config


def require_path(path: object, expected: str, error: type[ValueError]) -> None:
    """Raises `error`, which names what was expected, for an empty path and for anything else that is not a path."""
    if not isinstance(path, str | os.PathLike):
        raise error(f"expected {expected}, got {type(path).__name__}")
    if not os.fspath(path):
        raise error(f"expected {expected}, got an empty text")


def is_run(path: str | Path) -> bool:
    """Whether this folder is a training run; a folder of weights may have checkpoints, too."""
    folder = Path(path).expanduser()
    return (folder / PROCESSOR_FILE).exists() or ((folder / CHECKPOINTS).exists() and not has_weights(folder))


def runs_inside(folder: Path) -> str:
    """The end of a message about a folder that is not a run: `; runs inside it: a, b`, or ""."""
    inside = sorted(child.parent.name for child in folder.glob(f"*/{CONFIG_FILE}")) if folder.is_dir() else []
    more = f" and {len(inside) - MAX_RUNS_SHOWN} more" if len(inside) > MAX_RUNS_SHOWN else ""
    return f"; runs inside it: {', '.join(inside[:MAX_RUNS_SHOWN])}{more}" if inside else ""
