"""The model type of pretrained weights, and the task of exported models."""

from pathlib import Path
from typing import Any

from jaxnlp.convert.folders import CONFIG, EXPORTED, MODULES, PretrainedError, find_folder, read_object
from jaxnlp.convert.sentence_transformers import encoder_folder


def is_pretrained(folder: str | Path) -> bool:
    """Whether a folder has the config of pretrained weights, or the modules of sentence-transformers."""
    return any((Path(folder) / name).is_file() for name in (CONFIG, MODULES))


def pretrained_type(folder_or_name: str | Path) -> str:
    """The `model_type` of pretrained weights, such as bert.

    Raises: PretrainedError when the folder has no weights, or its config does not name a model type.
    """
    file = encoder_folder(find_folder(folder_or_name)) / CONFIG
    if not file.is_file():
        raise PretrainedError(f"{folder_or_name} is neither a training run nor pretrained weights: it has no {CONFIG}")
    found = read_object(file).get("model_type")
    if not isinstance(found, str):
        raise PretrainedError(f"{file}: expected a text as model_type, got {found!r}")
    return found


def exported_task(folder_or_name: str | Path) -> Any:
    """The task, as JSON, of a model that this library exported with its heads; None for other weights."""
    file = find_folder(folder_or_name) / EXPORTED
    return read_object(file).get("task") if file.is_file() else None
