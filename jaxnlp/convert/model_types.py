"""The model type of pretrained weights, and the task of exported models."""

from pathlib import Path
from typing import Any

from jaxnlp.convert.adapters import ADAPTER_CONFIG
from jaxnlp.convert.folders import (
    CONFIG,
    EXPORTED,
    INDEX,
    MODULES,
    WEIGHTS,
    PretrainedError,
    adapted_class,
    find_folder,
    read_object,
)
from jaxnlp.convert.sentence_transformers import encoder_folder


def is_pretrained(folder: str | Path) -> bool:
    """Whether a folder has the config of pretrained weights or of an adapter, or sentence-transformers' modules."""
    return any((Path(folder).expanduser() / name).is_file() for name in (CONFIG, MODULES, ADAPTER_CONFIG))


def has_weights(folder: Path) -> bool:
    """Whether a folder has files of pretrained weights, also PyTorch's, which are not read."""
    return any((folder / name).is_file() for name in (WEIGHTS, INDEX, "pytorch_model.bin", MODULES, ADAPTER_CONFIG))


def pretrained_types(path: str | Path) -> list[str]:
    """The names of the model of pretrained weights, the most specific first: its class in Transformers, such as
    BertForQuestionAnswering, if the config names it, and its `model_type`, such as bert.

    Raises: PretrainedError when the folder has no weights, or no model type.
    """
    file = encoder_folder(find_folder(path)) / CONFIG
    if not file.is_file():
        raise PretrainedError(f"{path} is neither a training run nor pretrained weights: it has no {CONFIG}")
    config = read_object(file)
    model_type, classes = config.get("model_type"), config.get("architectures") or []
    if not isinstance(model_type, str):
        raise PretrainedError(f"{file}: expected a text as model_type, got {model_type!r}")
    adapted = adapted_class(str(path))
    if adapted is not None:
        classes = [adapted]
    return [*(name for name in classes if isinstance(name, str)), model_type]


def exported_task(path: str | Path) -> Any:
    """The task, as JSON, of a model that this library exported with its heads; None for other weights."""
    file = find_folder(path) / EXPORTED
    return read_object(file).get("task") if file.is_file() else None
