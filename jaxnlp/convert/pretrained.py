"""Folders of pretrained BERTs, as Hugging Face Transformers writes and reads them."""

import dataclasses
import json
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, get_type_hints

import numpy as np
from safetensors.numpy import save_file

from jaxnlp.convert.bert import WeightsError, from_huggingface, to_huggingface
from jaxnlp.convert.folders import (
    CONFIG,
    EXPORTED,
    WEIGHTS,
    PretrainedError,
    find_folder,
    read_object,
    read_tensors,
)
from jaxnlp.convert.sentence_transformers import (
    embedding_settings,
    encoder_folder,
    input_settings,
    module_files,
    modules_after_pooling,
    pooling_of,
    tokenizer_max_length,
)
from jaxnlp.convert.settings import FIELDS, MODEL, REFUSED_FILES
from jaxnlp.models.bert import BertConfig
from jaxnlp.saving.atomic_files import naming
from jaxnlp.targets import Problem
from jaxnlp.text.embedding_settings import PLAIN, EmbeddingSettings
from jaxnlp.text.wordpiece import PAD, WordPieceVocabulary
from jaxnlp.typing import Params


class Pretrained(NamedTuple):
    """A pretrained BERT.

    Attributes:
      config: shape of the model.
      params: parameters of `Bert`, NumPy arrays.
      heads: parameters of `PretrainingHeads`: of both heads, of one head, or None.
      vocabulary: the tokenizer.
      pooling: method of computing a text's vector: `cls`, `mean`, for a run also `pooler`, or another name that
        sentence-transformers uses. None = unknown, as in folders that sentence-transformers did not write.
      max_length: maximum length of a text in tokens; None = unknown.
      modules_after_pooling: modules of sentence-transformers after the pooling, such as `Normalize`, in order.
      embeddings: prompts, and truncation of embeddings.
    """

    config: BertConfig
    params: Params
    heads: Params | None
    vocabulary: WordPieceVocabulary
    pooling: str | None = None
    max_length: int | None = None
    modules_after_pooling: tuple[str, ...] = ()
    embeddings: EmbeddingSettings = PLAIN


class HeadClass(NamedTuple):
    """A class of Transformers: a BERT with dropout and a dense layer.

    Attributes:
      name: of the class.
      prefix: of the names of the layer's tensors.
      reads_pooler: whether the layer reads the pooler's output. Otherwise it reads the vector of each token, and the
        encoder has no pooler.
    """

    name: str
    prefix: str
    reads_pooler: bool


OF_TEXTS = HeadClass("BertForSequenceClassification", "classifier.", reads_pooler=True)
OF_TOKENS = HeadClass("BertForTokenClassification", "classifier.", reads_pooler=False)
OF_SPANS = HeadClass("BertForQuestionAnswering", "qa_outputs.", reads_pooler=False)
HEAD_PREFIXES = ("classifier.", "qa_outputs.")
"""Prefixes of the tensors of all these heads."""


class Classifier(NamedTuple):
    """The head of a class of Transformers, or of a class in a program of the folder.

    Attributes:
      kernel: [D, C] for C outputs.
      bias: [C].
      dropout_rate: dropout rate in training.
      names: names of the C outputs; () = the config does not have any.
      problem: problem type of Transformers' config: one class, any number of classes, or a number.
      head: its class.
      program: the class that computes it, by its module in the folder; None = Transformers' own. With a program, the
        bias is stored as [1, C], so that Transformers' own class refuses the head.
    """

    kernel: np.ndarray
    bias: np.ndarray
    dropout_rate: float
    names: tuple[str, ...]
    problem: Problem = "single_label_classification"
    head: HeadClass = OF_TEXTS
    program: str | None = None


def read_pretrained(path: str | Path, *, ignore: tuple[str, ...] = ()) -> Pretrained:
    """Reads a BERT from a folder that Transformers or sentence-transformers wrote, or from the Hugging Face Hub.

    Args:
      path: a folder, or a name such as "google-bert/bert-base-uncased", which is downloaded once.
      ignore: names, or prefixes of names, of tensors to leave out, such as "classifier.".

    Raises:
      PretrainedError: when neither exists, when it contains another model, and for weights that are not safetensors.
      WeightsError: listing tensors that are missing, unknown or have other shapes.
    """
    whole = find_folder(path)
    folder = encoder_folder(whole)
    config, size = _config_of(folder / CONFIG, exported=(whole / EXPORTED).is_file())
    for name, reason in REFUSED_FILES.items():
        if (folder / name).is_file():
            raise PretrainedError(f"{folder / name}: not supported: {reason}")
    try:
        vocabulary = WordPieceVocabulary.of_folder(folder)
    except (FileNotFoundError, ValueError) as error:
        raise PretrainedError(str(error)) from error
    max_length, lowered = input_settings(folder)
    if max_length is None:
        max_length = tokenizer_max_length(folder, config.max_positions)
    if lowered:
        vocabulary = vocabulary.lowercased()
    if vocabulary.size > size:
        raise PretrainedError(
            f"{folder}: the tokenizer has {vocabulary.size} tokens, but the model has {size} embeddings"
        )
    tensors = {
        name: tensor
        for name, tensor in read_tensors(folder, str(path)).items()
        if not name.startswith(ignore) and (name, tensor.size) != (_BARRIER, 0)
    }
    if not any(name.endswith("pooler.dense.weight") for name in tensors):
        config = dataclasses.replace(config, use_pooler=False)
    try:
        params, heads = from_huggingface(tensors, config, size)
    except WeightsError as error:
        raise WeightsError(f"{folder}: {error}") from error
    if vocabulary.size < size:
        config = dataclasses.replace(config, padded_vocabulary_size=size)
    return Pretrained(
        config,
        params,
        heads,
        vocabulary,
        pooling_of(whole),
        max_length,
        modules_after_pooling(whole),
        embedding_settings(whole),
    )


def save_pretrained(
    folder: str | Path,
    pretrained: Pretrained,
    *,
    classifier: Classifier | None = None,
    further_heads: bool = False,
    further_files: Mapping[str, bytes] | None = None,
) -> None:
    """Writes a folder that Transformers' `from_pretrained` reads, atomically.

    If the pooling or the maximum length is known, it also writes the files of sentence-transformers for them. It does
    not write the pooling `pooler`, which sentence-transformers does not support.

    Args:
      folder: a new or empty folder.
      pretrained: without heads it becomes a BertModel, with both a BertForPreTraining, with one a BertForMaskedLM or
        a BertForNextSentencePrediction.
      classifier: a head instead of pretraining heads; the folder becomes one of its class. `read_pretrained` then needs
        ignore=HEAD_PREFIXES.
      further_heads: whether the model has heads that no class of Transformers has. Its classes with a classifier then
        refuse the folder, since they would add a random head: their bias is an empty tensor in the weights.
      further_files: contents of further files, by name.

    Raises:
      FileExistsError: when the folder is not empty.
      PretrainedError: for poolings and modules that this library does not support: they would be lost.
      WeightsError: for variants that Transformers' BERT does not have, and parameters that do not fit the config.
      ValueError: for a classifier together with pretraining heads; for one of texts on an encoder without a pooler, or
        one of tokens on an encoder with a pooler.
    """
    config, params, heads, vocabulary = pretrained[:4]
    misfit = classifier is not None and classifier.program is None and config.use_pooler != classifier.head.reads_pooler
    if classifier is not None and (heads is not None or misfit):
        pooler = "with" if classifier.head.reads_pooler else "without"
        raise ValueError(f"a classifier needs an encoder {pooler} a pooler, and no pretraining heads")
    folder = Path(folder)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FileExistsError(f"{folder} exists and is not empty; give another directory")
    size = int(np.shape(params["tokens"]["embedding"])[0])
    tensors = to_huggingface(params, config, size, heads)
    settings = {
        # A pipeline takes a class that is named here where its own class refuses the folder.
        "architectures": [] if further_heads else [architecture(heads, classifier)],
        **{theirs: getattr(config, ours) for theirs, ours in FIELDS.items()},
        "intermediate_size": config.feed_forward_width or 4 * config.width,
        **{name: MODEL.supported[name][0] for name in ("model_type", "hidden_act", "position_embedding_type")},
        "initializer_range": 0.02,
        "pad_token_id": vocabulary.id_of(PAD),
        "vocab_size": size,
    }
    if heads is None and (classifier is not None or further_heads):
        tensors = {f"bert.{name}": tensor for name, tensor in tensors.items()}
    if further_heads:
        tensors[_BARRIER] = np.zeros(0, np.float32)
    if classifier is not None:
        weight, bias = (f"{classifier.head.prefix}{name}" for name in ("weight", "bias"))
        tensors[weight] = np.array(classifier.kernel.T, np.float32, order="C")
        tensors[bias] = np.array(classifier.bias, np.float32)
        if classifier.program is not None:
            tensors[bias] = tensors[bias][None]
            settings["auto_map"] = {"AutoModelForSequenceClassification": classifier.program}
        settings |= {"problem_type": classifier.problem} if classifier.head.reads_pooler else {}
        settings["classifier_dropout"] = classifier.dropout_rate
        if classifier.names:
            settings["id2label"] = {str(label): name for label, name in enumerate(classifier.names)}  # also num_labels
            settings["label2id"] = {name: label for label, name in enumerate(classifier.names)}
    documents = {CONFIG: settings, **module_files(config.width, *pretrained[4:])}
    files = {name: (json.dumps(held, indent=2) + "\n").encode() for name, held in documents.items()}
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        with naming(folder):
            save_file(tensors, partial / WEIGHTS, metadata={"format": "pt"})
            vocabulary.save(partial, max_length=pretrained.max_length or config.max_positions)
            for name, content in {**files, **(further_files or {})}.items():
                (partial / name).parent.mkdir(exist_ok=True)
                (partial / name).write_bytes(content)
        partial.chmod(0o755)  # only the owner can read temporary folders and what safetensors writes
        (partial / WEIGHTS).chmod(0o644)
        partial.replace(folder)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def architecture(heads: Params | None, classifier: Classifier | None = None) -> str:
    """Transformers' name of a BERT with these pretraining heads, or with a classifier."""
    if classifier is not None:
        return classifier.head.name
    if heads is None:
        return "BertModel"
    if "follows" not in heads:
        return "BertForMaskedLM"
    return "BertForPreTraining" if "token_bias" in heads else "BertForNextSentencePrediction"


def _config_of(file: Path, *, exported: bool) -> tuple[BertConfig, int]:
    """The model's shape, and V.

    Args:
      file: the config.
      exported: whether this library wrote it, perhaps with settings for the program next to it.
    """
    settings = read_object(file)
    strange = MODEL.problems({name: settings[name] for name in settings if not exported or name in MODEL.names})
    types = get_type_hints(BertConfig)
    for theirs, ours in (*FIELDS.items(), ("vocab_size", None)):
        number = ours is not None and types[ours] is float
        # isinstance would take True for a number.
        if theirs in settings and type(settings[theirs]) not in ((int, float) if number else (int,)):
            strange.append(f"{theirs} {settings[theirs]!r}, expected a {'number' if number else 'whole number'}")
    missing = [name for name in (*FIELDS, "vocab_size") if name not in settings and name in _NEEDED]
    if strange or missing:
        problems = strange + [f"no {name}" for name in missing]
        raise PretrainedError(f"{file} is not the config of a supported BERT: {'; '.join(problems)}")
    try:
        config = BertConfig(**{ours: settings[theirs] for theirs, ours in FIELDS.items() if theirs in settings})
    except ValueError as error:
        raise PretrainedError(f"{file}: {error}") from error
    return config, settings["vocab_size"]


_BARRIER = "classifier.bias"
_NEEDED = ("num_hidden_layers", "num_attention_heads", "hidden_size", "intermediate_size", "vocab_size")
