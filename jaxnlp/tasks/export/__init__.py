"""`jaxnlp export`: a trained model as a folder that other libraries read."""

import dataclasses
import json
from pathlib import Path
from typing import Literal

import tyro

from jaxnlp.saving.atomic_files import new_folder, refuse_contents
from jaxnlp.tasks import Command, Trained


@dataclasses.dataclass(frozen=True)
class ExportCommand(Command):
    """Writes a model as a folder for JAX without this library (--format jax), for ONNX (--format onnx), or as the
    adapter of a model that was trained with LoRA (--format peft).

    The folder has a program for each function of the model, for CPUs, GPUs and TPUs and for any number of inputs;
    export.json, which describes them; the parameters; the vocabulary and the labels as processor.json; and load.py,
    which needs jax, numpy and flatbuffers. For ONNX, the functions have their parameters.

    Raises, when it is called:
      ValueError: when Transformers has no such model.
      OSError: when the directory is not empty or cannot be written.
    """

    summary = "Writes a model as a folder for other libraries."
    as_trained = True

    folder: tyro.conf.Positional[Path]
    """Directory to write: new, or empty."""
    format: Literal["transformers", "peft", "jax", "onnx"] = "transformers"
    """For Hugging Face Transformers, if it has such a model; for PEFT, the factors of LoRA; for JAX, any model; or for
    ONNX, with the extra onnx."""

    def __call__(self, trained: Trained) -> None:
        if self.format == "transformers":
            self.write_transformers(trained)
            return
        if self.format == "peft":
            from jaxnlp.tasks.export.adapters import write_adapter

            write_adapter(self, trained)
            return
        from jaxnlp.tasks.export.onnx_files import onnx_files
        from jaxnlp.tasks.export.programs import DESCRIPTION, LOADER, jax_files

        refuse_contents(self.folder)
        files = (jax_files if self.format == "jax" else onnx_files)(trained)
        with new_folder(self.folder) as partial:
            for name, content in files.items():
                (partial / name).write_bytes(content)
        if self.format == "jax":
            print(f"{self.folder / LOADER} loads it with jax, numpy and flatbuffers")
        for name, one in json.loads(files[DESCRIPTION])["functions"].items():
            limits = [f"; {letter} is at most {most:,}" for letter, (_, most) in one["limits"].items() if most]
            print(f"{name}({', '.join(one['inputs'])}): {one['returns']}{''.join(limits)}")

    def write_transformers(self, trained: Trained) -> None:
        """Writes the folder for Transformers. Raises: ValueError when Transformers has no such model."""
        raise without_class(trained)


def without_class(trained: Trained) -> ValueError:
    """The error for a model that Transformers does not have."""
    return ValueError(
        f"{trained.name}: Transformers has no class for its model, a {type(trained.model).__name__}; give --format jax"
    )
