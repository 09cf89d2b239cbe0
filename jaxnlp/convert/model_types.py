"""Which task pretrained weights are for."""

from pathlib import Path

from jaxnlp.convert.folders import CONFIG, PretrainedError, find_folder, read_object
from jaxnlp.convert.sentence_transformers import encoder_folder

TASKS = {"bert": "jaxnlp.tasks.text_tasks:TextTasks"}
"""The task that pretrained weights are for, by the `model_type` of their config."""


def pretrained_task(folder_or_name: str | Path) -> str:
    """The class of the task that pretrained weights are for, as "module:Class".

    Raises: PretrainedError when it is not a folder of weights, or of a model that the library does not have.
    """
    file = encoder_folder(find_folder(folder_or_name)) / CONFIG
    if not file.is_file():
        raise PretrainedError(f"{folder_or_name} is neither a training run nor pretrained weights: it has no {CONFIG}")
    found = read_object(file).get("model_type")
    if found not in TASKS:
        raise PretrainedError(f"{file}: model_type must be one of {', '.join(TASKS)}, got {found!r}")
    return TASKS[found]
