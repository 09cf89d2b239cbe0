"""Folders of pretrained decoders, as Hugging Face Transformers writes and reads them."""

import dataclasses
import functools
import json
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxnlp.convert.decoder_weights import from_huggingface, has_own_head, to_huggingface
from jaxnlp.convert.decoders import DecoderFamily, families
from jaxnlp.convert.folders import (
    CONFIG,
    errors_name,
    find_folder,
    is_adapter,
    read_object,
    read_tensors,
    read_vocabulary,
    refuse_files,
    write_folder,
)
from jaxnlp.convert.rotary import rotary_fields, rotary_settings
from jaxnlp.convert.shapes import fields_of, label_settings, settings_of
from jaxnlp.convert.sliding_windows import window_fields, window_settings
from jaxnlp.convert.tensors import WeightsError
from jaxnlp.models.gpt import GPTConfig
from jaxnlp.models.llama import LlamaConfig
from jaxnlp.nn.compute import EXACT
from jaxnlp.saving.atomic_files import refuse_contents
from jaxnlp.targets import Problem
from jaxnlp.text.byte_pairs import BytePairs
from jaxnlp.typing import Params


class PretrainedDecoder(NamedTuple):
    """A pretrained decoder with its output layer.

    Attributes:
      config: shape of the model.
      params: parameters of `GPT` or `Llama`, NumPy arrays.
      vocabulary: the tokenizer.
    """

    config: GPTConfig
    params: Params
    vocabulary: BytePairs


class DecoderHead(NamedTuple):
    """The head of a classifier of texts: a dense layer without a bias.

    Attributes:
      kernel: [D, C] for C outputs.
      names: of the outputs.
      problem: problem type of Transformers' config.
    """

    kernel: np.ndarray
    names: tuple[str, ...]
    problem: Problem


CLASSIFIER_HEAD = "score."
"""First part of the names of its tensors."""


def read_decoder(path: str | Path, *, ignore: tuple[str, ...] = (), output_layer: bool = True) -> PretrainedDecoder:
    """Reads a decoder from a folder that Transformers wrote, or from the Hugging Face Hub.

    Args:
      path: a folder, or a name such as "openai-community/gpt2", which is downloaded once.
      ignore: names, or their prefixes, of tensors to leave out, such as "score.".
      output_layer: whether to read an output layer of tokens; otherwise the config ties it to the embedding.

    Raises:
      PretrainedError: when neither exists, for another model, and for weights that are not safetensors.
      WeightsError: listing tensors that are missing, unknown or have other shapes.
    """
    folder = find_folder(path)
    family, fields, size = _fields_of(folder / CONFIG)
    fields |= {} if output_layer else {"tie_embeddings": True}
    refuse_files(folder)
    vocabulary = read_vocabulary(folder, BytePairs.of_folder, size)
    padded = size if vocabulary.size < size else None
    with errors_name(folder / CONFIG):
        config = family.config(
            **{**family.fixed, **family.defaults, **fields}, padded_vocabulary_size=padded, compute=EXACT
        )
    if not output_layer and is_adapter(str(path)):
        ignore += (f"{family.names.head}.",)  # the base may have one
    tensors = read_tensors(folder, str(path), ignore=ignore)
    if config.tie_embeddings and is_adapter(str(path)) and has_own_head(tensors, family):
        config = dataclasses.replace(config, tie_embeddings=False)
    with errors_name(folder):
        params = from_huggingface(tensors, config, size, family)
    return PretrainedDecoder(config, params, vocabulary)


_NEEDED = ("num_layers", "num_heads", "width", "context_length")


def _fields_of(file: Path) -> tuple[DecoderFamily, dict[str, Any], int]:
    """The family of a config.json, the fields of our config that it sets, and V. Raises: PretrainedError."""
    known, settings = families(), read_object(file)
    model_type = str(settings.get("model_type"))
    kind = known[model_type].config if model_type in known else GPTConfig
    family, fields, size = fields_of(file, known, kind, _NEEDED, default="")
    if family.rotary:
        fields |= rotary_fields(file, settings)
    if family.windows != "none":
        fields |= window_fields(file, settings, some=family.windows == "some")
    return family, fields, size


def family_of(config: GPTConfig) -> str:
    """The model type of an exported decoder: the family that lacks the fewest of its variants."""

    def strange(family: DecoderFamily) -> tuple[bool, int]:
        differs = sum(getattr(config, name, None) != value for name, value in family.fixed.items())
        return type(config) is not family.config, differs

    known = families()
    return min(known, key=lambda name: strange(known[name]))


def save_decoder(
    folder: str | Path,
    pretrained: PretrainedDecoder,
    *,
    head: DecoderHead | None = None,
    max_length: int | None = None,
) -> str:
    """Writes a folder that Transformers' `from_pretrained` reads, atomically: one of `family_of`.

    Args:
      folder: new or empty.
      pretrained: the decoder.
      head: of a classifier of texts, instead of the output layer.
      max_length: maximum length of a text in tokens; None = the context length.

    Returns: the name of its class in Transformers.

    Raises:
      FileExistsError: when the folder is not empty.
      WeightsError: for variants that Transformers does not have, parameters that do not fit the config, and a tokenizer
        that Transformers would replace by the family's.
    """
    (config, params, vocabulary), model_type = pretrained, family_of(pretrained.config)
    family, folder = families()[model_type], Path(folder).expanduser()
    refuse_contents(folder)
    tensors = to_huggingface(params, config, family)
    _check_tokenizer(vocabulary, model_type, family.title)
    if not vocabulary.named and vocabulary.id_of(family.end) is not None:
        vocabulary = vocabulary.with_named(dict.fromkeys(("bos_token", "eos_token", "unk_token"), family.end))
    ours, further = vars(config), {}
    if isinstance(config, LlamaConfig):
        ours, further = ours | config.architecture(), rotary_settings(config)
        if family.windows != "none":
            further |= window_settings(config, some=family.windows == "some")
    ends = {f"{name}_id": vocabulary.named.get(name) for name in ("bos_token", "eos_token", "pad_token")}
    architecture = family.architecture if head is None else family.classifier
    settings: dict[str, Any] = {
        "architectures": [architecture],
        "model_type": model_type,
        **settings_of(family, ours),
        **further,
        "initializer_range": 0.02,
        "vocab_size": len(params["tokens"]["embedding"]),
        **{name: token and vocabulary.id_of(token) for name, token in ends.items()},
    }
    if head is not None:
        tensors[f"{CLASSIFIER_HEAD}weight"] = np.array(head.kernel.T, np.float32, order="C")
        settings |= {"problem_type": head.problem, **label_settings(head.names)}
    tokenizer = functools.partial(vocabulary.save, max_length=max_length or config.context_length)
    write_folder(folder, tensors, {CONFIG: settings}, write_tokenizer=tokenizer)
    return architecture


_PROBE = "Don't  read 1234 times:\n\ncafe\u0301, \u6587."
"""A text that pre-tokenizers split differently."""


def _check_tokenizer(vocabulary: BytePairs, model_type: str, title: str) -> None:
    """Raises: WeightsError when Transformers does not use the written tokenizer, as for every Qwen2."""
    with tempfile.TemporaryDirectory() as folder:
        vocabulary.save(Path(folder), max_length=1)
        (Path(folder) / CONFIG).write_text(json.dumps({"model_type": model_type}))
        read = BytePairs.of_folder(Path(folder))
    if read.encode(_PROBE).tolist() != vocabulary.encode(_PROBE).tolist():
        raise WeightsError(
            f"Transformers gives every {title} a tokenizer of its own class, whose tokens differ from those of this "
            "vocabulary; give --format jax"
        )
