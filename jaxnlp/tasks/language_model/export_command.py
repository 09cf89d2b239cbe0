"""Language models as decoders of Transformers."""

import dataclasses
from typing import Any

import jax
import numpy as np

from jaxnlp.convert.pretrained_decoder import PretrainedDecoder, save_decoder
from jaxnlp.convert.tensors import WeightsError
from jaxnlp.models.gpt import GPTConfig
from jaxnlp.tasks import Trained
from jaxnlp.tasks.export import ExportCommand, without_class
from jaxnlp.text.byte_pairs import BytePairs


@dataclasses.dataclass(frozen=True)
class ExportDecoder(ExportCommand):
    """Writes a GPT or a Llama of byte-level BPE as a directory that Hugging Face Transformers reads: a GPT-2, Llama,
    Qwen2 or Qwen3 with its tokenizer.

    It is written atomically. `jaxnlp.load_pretrained` and the verbs read it back. --format jax and onnx write every
    language model.

    Raises, when it is called: ValueError: for another family, another vocabulary, or layers that none of these families
      has. OSError: when the directory is not empty or cannot be written.
    """

    def write_transformers(self, trained: Trained) -> None:
        model: Any = trained.model
        if not isinstance(model.config, GPTConfig):
            raise without_class(trained)
        if not isinstance(trained.processor, BytePairs):
            raise WeightsError(
                "only a vocabulary of byte-level BPE can be exported with a GPT, got a "
                f"{type(trained.processor).__name__}; train on the data of gpt2_small, or give --format jax"
            )
        params = jax.tree.map(np.asarray, dict(trained.params))
        kind = save_decoder(self.folder, PretrainedDecoder(model.config, params, trained.processor))
        print(f"{self.folder}: transformers.{kind}.from_pretrained reads it, and jaxnlp")
