"""The adapter of a model that was trained with LoRA, as a folder that PEFT reads."""

import contextlib
import dataclasses
import json
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors.numpy import save_file

from jaxnlp.convert.adapters import ADAPTER, ADAPTER_CONFIG, factors_of_change
from jaxnlp.convert.folders import CONFIG, WEIGHTS, PretrainedError, find_folder, is_adapter, read_object, read_tensors
from jaxnlp.convert.sentence_transformers import encoder_folder
from jaxnlp.convert.tensors import WeightsError
from jaxnlp.saving.atomic_files import new_folder, refuse_contents
from jaxnlp.tasks import Trained

if TYPE_CHECKING:
    from jaxnlp.tasks.export import ExportCommand

_TASKS = {
    "ForSequenceClassification": "SEQ_CLS",
    "ForTokenClassification": "TOKEN_CLS",
    "ForQuestionAnswering": "QUESTION_ANS",
    "ForCausalLM": "CAUSAL_LM",
    "LMHeadModel": "CAUSAL_LM",
    "ForConditionalGeneration": "SEQ_2_SEQ_LM",
    "MTModel": "SEQ_2_SEQ_LM",
}
"""PEFT's tasks, by the ends of the names of Transformers' classes; PEFT has none for images."""


def write_adapter(command: "ExportCommand", trained: Trained) -> None:
    """Writes the difference from the run's initial weights: the factors, and whole tensors of new heads. The config and
    the tokenizer are the whole model's.

    Args:
      command: writes the whole model for Transformers.
      trained: a run with LoRA that started from weights of Transformers.

    Raises: ValueError for another model; OSError when the folder is not empty or cannot be written.
    """
    rank = trained.config.get("optimizer", {}).get("lora_rank", 0)
    base = trained.config.get("init_from")
    if not rank or base is None:
        raise ValueError(
            f"{trained.name}: only a run that was trained with LoRA has an adapter: give --optimizer.lora-rank and "
            "--init-from in training, or another --format here"
        )
    refuse_contents(command.folder)
    try:
        held = encoder_folder(find_folder(base))
    except PretrainedError as error:
        raise ValueError(
            f"{trained.name} began with {base}: {error}; a relative path needs the folder in which the run was started"
        ) from error
    if is_adapter(base):
        raise ValueError(
            f"{trained.name}: the run began with the adapter {base}, which a second adapter would lack; give another "
            "--format, which writes the whole model"
        )
    before = read_tensors(held, base)
    with tempfile.TemporaryDirectory() as folder:
        whole = Path(folder) / "model"
        with contextlib.redirect_stdout(None):
            dataclasses.replace(command, folder=whole, format="transformers").write_transformers(trained)
        after, settings = read_tensors(whole, str(whole)), read_object(whole / CONFIG)
        (kind, *_), model_type = settings["architectures"], settings["model_type"]
        task = next((name for end, name in _TASKS.items() if kind.endswith(end)), None)
        try:
            adapter = factors_of_change(before, after, rank=rank, model_type=model_type, task_type=task)
        except WeightsError as error:
            raise ValueError(f"{trained.name}: {error}; give another --format") from error
        name = str(held.resolve()) if Path(base).expanduser().is_dir() else base
        (whole / WEIGHTS).unlink()
        save_file(adapter.tensors, whole / ADAPTER, metadata={"format": "pt"})
        (whole / ADAPTER).chmod(0o644)  # safetensors lets only the owner read it
        content = {**adapter.settings, "base_model_name_or_path": name}
        (whole / ADAPTER_CONFIG).write_text(json.dumps(content, indent=2) + "\n")
        with new_folder(command.folder) as partial:
            shutil.copytree(whole, partial, dirs_exist_ok=True)
    print(f"{command.folder}: jaxnlp reads it; {_for_peft(settings, name)}")


def _for_peft(settings: dict[str, Any], base: str) -> str:
    """How PEFT reads an adapter. Args: settings: the exported config."""
    (kind, *_), own = settings["architectures"], settings.get("auto_map", {})
    if not own:
        return f"peft.PeftModel.from_pretrained adds it to a transformers.{kind} of {base}"
    module = next(iter(own.values())).split(".")[0]
    return (
        f"so does PEFT, with the class of {module}.py, from this folder: from {module} import {kind}; model = "
        f'{kind}.from_pretrained("{base}", config=transformers.AutoConfig.from_pretrained(".")); model = '
        'peft.PeftModel.from_pretrained(model, ".")'
    )
