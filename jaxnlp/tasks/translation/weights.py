"""Encoder-decoders of Transformers as translators, and translators as encoder-decoders of Transformers."""

import dataclasses
from pathlib import Path
from typing import Any

import jax
import numpy as np
import tyro

from jaxnlp.convert.pretrained_encoder_decoder import (
    PretrainedEncoderDecoder,
    read_encoder_decoder,
    save_encoder_decoder,
)
from jaxnlp.convert.tensors import WeightsError
from jaxnlp.models.encoder_decoder import EncoderDecoderConfig
from jaxnlp.tasks import Command, Task, Trained
from jaxnlp.text.pretrained_subwords import PretrainedSubwords
from jaxnlp.text.translation import TranslationProcessor


def encoder_decoder_of_transformers(task: Task, path: str | Path, *, ignore: tuple[str, ...] = ()) -> Trained:
    """An encoder-decoder that Transformers trained, with its tokenizer. Raises: PretrainedError, WeightsError as
    `read_encoder_decoder`."""
    config, params, vocabulary = read_encoder_decoder(path, ignore=ignore)
    params = jax.device_put(params, jax.local_devices()[0])
    processor = TranslationProcessor(vocabulary, vocabulary)
    return Trained(task, config.build(processor), params, processor, name=str(path))


@dataclasses.dataclass(frozen=True)
class ExportEncoderDecoder(Command):
    """Writes a model that was trained from a T5's weights as a directory that Hugging Face Transformers reads.

    It is a T5 with its tokenizer. An mT5 is written as a T5, too: it is the same function. The directory is written
    atomically. `jaxnlp.load_pretrained` and the verbs read it back.

    Raises, when it is called:
      WeightsError: for a model that is not a T5: another family, its own vocabulary, or layers that T5 does not have.
      OSError: when the directory is not empty or cannot be written.
    """

    folder: tyro.conf.Positional[Path]
    """Directory to write: new, or empty."""

    def __call__(self, trained: Trained) -> None:
        model: Any = trained.model
        if not isinstance(model.config, EncoderDecoderConfig):
            raise WeightsError(
                f"only an encoder-decoder Transformer can be exported as a T5, got a {type(model).__name__}"
            )
        vocabulary = trained.processor.target
        if not isinstance(vocabulary, PretrainedSubwords):
            raise WeightsError(
                "only a model with a T5's tokenizer can be exported as a T5, but this one has its own vocabulary; "
                "train from a T5's weights with the recipe t5_finetune"
            )
        params = jax.tree.map(np.asarray, dict(trained.params))
        kind = save_encoder_decoder(self.folder, PretrainedEncoderDecoder(model.config, params, vocabulary))
        print(f"{self.folder}: transformers.{kind}.from_pretrained reads it, and jaxnlp")
