"""Models of text to text as encoder-decoders of Transformers."""

import dataclasses
from typing import Any

import jax
import numpy as np

from jaxnlp.convert.pretrained_encoder_decoder import (
    PretrainedEncoderDecoder,
    save_encoder_decoder,
)
from jaxnlp.models.encoder_decoder import EncoderDecoderConfig
from jaxnlp.tasks import Trained
from jaxnlp.tasks.export import ExportCommand, without_class
from jaxnlp.text.pretrained_subwords import PretrainedSubwords


@dataclasses.dataclass(frozen=True)
class ExportEncoderDecoder(ExportCommand):
    """Writes a model that was trained from the weights of a T5, a BART or a Marian as a directory that Hugging Face
    Transformers reads.

    It has the tokenizer, too. An mT5 is written as a T5, which is the same function. The directory is written
    atomically. `jaxnlp.load_pretrained` and the verbs read it back. --format jax and onnx write every model.

    Raises, when it is called: ValueError: for another family, for a vocabulary of its own, or for layers that none of
      these families has. OSError: when the directory is not empty or cannot be written.
    """

    def write_transformers(self, trained: Trained) -> None:
        model: Any = trained.model
        vocabulary = trained.processor.target
        if not isinstance(model.config, EncoderDecoderConfig) or not isinstance(vocabulary, PretrainedSubwords):
            raise without_class(trained)
        params = jax.tree.map(np.asarray, dict(trained.params))
        kind = save_encoder_decoder(self.folder, PretrainedEncoderDecoder(model.config, params, vocabulary))
        print(f"{self.folder}: transformers.{kind}.from_pretrained reads it, and jaxnlp")
