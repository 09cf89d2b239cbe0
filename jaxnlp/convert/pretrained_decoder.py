"""Folders of pretrained decoders, as Hugging Face Transformers writes and reads them."""

import functools
import json
from pathlib import Path
from typing import Any, NamedTuple

from jaxnlp.convert.decoder import from_huggingface, to_huggingface
from jaxnlp.convert.decoders import families
from jaxnlp.convert.folders import (
    CONFIG,
    PretrainedError,
    find_folder,
    read_tensors,
    refuse_files,
    write_folder,
)
from jaxnlp.convert.shapes import fields_of
from jaxnlp.convert.tensors import WeightsError
from jaxnlp.models.gpt import GPTConfig
from jaxnlp.nn.compute import EXACT
from jaxnlp.saving.atomic_files import refuse_contents
from jaxnlp.text.byte_pairs import BytePairs
from jaxnlp.typing import Params


class PretrainedDecoder(NamedTuple):
    """A pretrained decoder with its output layer.

    Attributes:
      config: shape of the model.
      params: parameters of `GPT`, NumPy arrays.
      vocabulary: the tokenizer.
    """

    config: GPTConfig
    params: Params
    vocabulary: BytePairs


def read_decoder(path: str | Path, *, ignore: tuple[str, ...] = ()) -> PretrainedDecoder:
    """Reads a decoder from a folder that Transformers wrote, or from the Hugging Face Hub.

    Args:
      path: a folder, or a name such as "openai-community/gpt2", which is downloaded once.
      ignore: names, or prefixes of names, of tensors to leave out, such as "score.".

    Raises:
      PretrainedError: when neither exists, when it contains another model, and for weights that are not safetensors.
      WeightsError: listing tensors that are missing, unknown or have other shapes.
    """
    folder = find_folder(path)
    family, fields, size = fields_of(folder / CONFIG, families(), GPTConfig, _NEEDED, default="")
    refuse_files(folder)
    try:
        vocabulary = BytePairs.of_folder(folder)
    except (FileNotFoundError, ValueError) as error:
        raise PretrainedError(str(error)) from error
    if vocabulary.size > size:
        raise PretrainedError(
            f"{folder}: the tokenizer has {vocabulary.size} tokens, but the model has {size} embeddings"
        )
    padded = size if vocabulary.size < size else None
    try:
        config = GPTConfig(
            **{**family.fixed, **family.defaults, **fields}, padded_vocabulary_size=padded, compute=EXACT
        )
    except ValueError as error:
        raise PretrainedError(f"{folder / CONFIG}: {error}") from error
    tensors = {name: x for name, x in read_tensors(folder, str(path)).items() if not name.startswith(ignore)}
    try:
        params = from_huggingface(tensors, config, size, family)
    except WeightsError as error:
        raise WeightsError(f"{folder}: {error}") from error
    return PretrainedDecoder(config, params, vocabulary)


_NEEDED = ("num_layers", "num_heads", "width", "context_length")


def save_decoder(folder: str | Path, pretrained: PretrainedDecoder, *, model_type: str = "gpt2") -> str:
    """Writes a folder that Transformers' `from_pretrained` reads, atomically.

    Args:
      folder: a new or empty folder.
      pretrained: the decoder.
      model_type: the family as which it is written.

    Returns: the name of its class in Transformers.

    Raises:
      FileExistsError: when the folder is not empty.
      WeightsError: for variants that Transformers does not have, and parameters that do not fit the config.
    """
    (config, params, vocabulary), family = pretrained, families()[model_type]
    folder = Path(folder)
    refuse_contents(folder)
    tensors = to_huggingface(params, config, family)
    end = vocabulary.id_of(family.end)
    fields = {theirs: getattr(config, ours) for theirs, ours in family.fields.items()}
    settings: dict[str, Any] = {
        "architectures": [family.architecture],
        "model_type": model_type,
        **{theirs: _written(family.values.get(theirs), value) for theirs, value in fields.items()},
        "initializer_range": 0.02,
        "vocab_size": len(params["tokens"]["embedding"]),
        "bos_token_id": end,
        "eos_token_id": end,
    }
    tokenizer = functools.partial(
        vocabulary.save, end=None if end is None else family.end, max_length=config.context_length
    )
    write_folder(folder, tensors, tokenizer, {CONFIG: (json.dumps(settings, indent=2) + "\n").encode()})
    return family.architecture


def _written(values: Any, value: Any) -> Any:
    """A value of our config as config.json has it: the first one that means it."""
    return value if values is None else next(theirs for theirs, ours in values.items() if ours == value)
