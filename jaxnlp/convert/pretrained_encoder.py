"""Folders of pretrained encoders, as Hugging Face Transformers writes and reads them."""

import dataclasses
import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxnlp.convert.encoder_weights import checked_family, from_huggingface, to_huggingface
from jaxnlp.convert.encoders import EncoderFamily, families
from jaxnlp.convert.folders import (
    CONFIG,
    EXPORTED,
    PretrainedError,
    errors_name,
    find_folder,
    read_object,
    read_tensors,
    read_vocabulary,
    refuse_files,
    write_folder,
)
from jaxnlp.convert.layer_kinds import layer_kind_fields, layer_kind_settings
from jaxnlp.convert.sentence_transformers import (
    embedding_settings,
    encoder_folder,
    input_settings,
    module_files,
    modules_after_pooling,
    pooling_of,
    tokenizer_max_length,
)
from jaxnlp.convert.shapes import fields_of, label_settings, settings_of
from jaxnlp.models.bert import BertConfig
from jaxnlp.models.bert_pretraining import PretrainingHeads
from jaxnlp.nn.compute import EXACT
from jaxnlp.saving.atomic_files import refuse_contents
from jaxnlp.targets import Problem
from jaxnlp.text.embedding_settings import PLAIN, EmbeddingSettings
from jaxnlp.text.encoder_vocabulary import EncoderVocabulary
from jaxnlp.typing import Params


class Pretrained(NamedTuple):
    """A pretrained encoder: a BERT, or a variant of it.

    Attributes:
      config: shape of the model.
      params: parameters of `Bert`, NumPy arrays.
      heads: parameters of `PretrainingHeads`: of both heads, of one head, or None; `replaced` has ELECTRA's head of
        replaced tokens, which is only read and written.
      vocabulary: the tokenizer.
      pooling: by its name in sentence-transformers, such as `cls` or `mean`, or for a run `pooler`; None = unknown, as
        in other libraries' folders.
      max_length: maximum length of a text in tokens; None = unknown.
      modules_after_pooling: modules of sentence-transformers after the pooling, such as `Normalize`, in order.
      embeddings: prompts, and truncation of embeddings.
    """

    config: BertConfig
    params: Params
    heads: Params | None
    vocabulary: EncoderVocabulary
    pooling: str | None = None
    max_length: int | None = None
    modules_after_pooling: tuple[str, ...] = ()
    embeddings: EmbeddingSettings = PLAIN

    @property
    def longest(self) -> int:
        """Maximum length of a text in tokens: `max_length`, up to the number of positions."""
        return min(self.max_length or self.config.max_positions, self.config.max_positions)

    def token_logits(self, hidden: jax.Array) -> jax.Array:
        """The logits of masked tokens [..., V], of the encoder's output [..., D], in float32.

        Raises: ValueError for weights without a head of masked tokens.
        """
        if self.heads is None or "token_bias" not in self.heads:
            raise ValueError("these weights do not have a head of masked tokens")
        config, table = self.config, self.params["tokens"]["embedding"]
        head = PretrainingHeads(len(table), config.epsilon, config.embedded_width, config.use_bias, EXACT)
        outputs: Any = head.apply({"params": self.heads}, hidden.reshape(-1, hidden.shape[-1]))
        x, bias, _ = outputs
        return (x @ table.T + bias[None]).reshape(*hidden.shape[:-1], len(table))


class HeadClass(NamedTuple):
    """A class of Transformers: an encoder with dropout and a dense layer.

    Attributes:
      name: of the class, after the prefix of its family.
      prefix: of the layer's tensors; a family may have another one for a classifier of texts.
      reads_pooler: whether the layer reads the pooler's output; otherwise each token's vector, without a pooler.
    """

    name: str
    prefix: str
    reads_pooler: bool

    def classes(self) -> dict[str, EncoderFamily]:
        """The families, by the names of their classes."""
        return {f"{family.prefix}{self.name}": family for family in families().values()}


OF_TEXTS = HeadClass("ForSequenceClassification", "classifier.", reads_pooler=True)
OF_TOKENS = HeadClass("ForTokenClassification", "classifier.", reads_pooler=False)
OF_SPANS = HeadClass("ForQuestionAnswering", "qa_outputs.", reads_pooler=False)


class Classifier(NamedTuple):
    """The head of a class of Transformers, or of a class in a program of the folder.

    Attributes:
      kernel: [D, C] for C outputs.
      bias: [C].
      dropout_rate: dropout rate in training.
      names: of the C outputs; () = none in the config.
      problem: problem type of Transformers' config: one class, any number of classes, or a number.
      head: its class.
      program: the folder's module with its class; None = Transformers' own class. With a program, the bias is stored as
        [1, C], so that Transformers' own class refuses the head.
      activation: of a number, for sentence-transformers; None = a sigmoid.
    """

    kernel: np.ndarray
    bias: np.ndarray
    dropout_rate: float
    names: tuple[str, ...]
    problem: Problem = "single_label_classification"
    head: HeadClass = OF_TEXTS
    program: str | None = None
    activation: str | None = None


def read_pretrained(path: str | Path, *, ignore: tuple[str, ...] = ()) -> Pretrained:
    """Reads an encoder from a folder that Transformers or sentence-transformers wrote, or from the Hugging Face Hub.

    Args:
      path: a folder, or a name such as "google-bert/bert-base-uncased", which is downloaded once.
      ignore: names, or their prefixes, of tensors to leave out, such as "classifier.".

    Raises:
      PretrainedError: when neither exists, for another model, and for weights that are not safetensors.
      WeightsError: listing tensors that are missing, unknown or have other shapes.
    """
    whole = find_folder(path)
    folder = encoder_folder(whole)
    family, config, size = _config_of(folder / CONFIG, exported=(whole / EXPORTED).is_file())
    refuse_files(folder)
    vocabulary = read_vocabulary(folder, EncoderVocabulary.of_folder, size)
    max_length, lowered = input_settings(folder)
    if max_length is None:
        max_length = tokenizer_max_length(folder, config.max_positions)
    if not family.reads_segments:
        vocabulary = vocabulary.without_segments()
    if lowered:
        vocabulary = vocabulary.lowercased()
    tensors = {
        name: tensor
        for name, tensor in read_tensors(folder, str(path), ignore=ignore).items()
        if tensor.size or name not in family.barriers
    }
    poolers = tuple(f"{name}.weight" for name in (family.names.pooler, family.classifier_pooler))
    shared = family.names.pooler == family.names.transform and family.names.token_bias in tensors
    if shared or not any(name.endswith(poolers) for name in tensors):
        config = dataclasses.replace(config, use_pooler=False)
    with errors_name(folder):
        params, heads = from_huggingface(tensors, config, size)
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

    It also writes the files of sentence-transformers for a known pooling, except `pooler`, and maximum length.

    Args:
      folder: a new or empty folder.
      pretrained: without heads it becomes a BertModel, with both a BertForPreTraining, with one a BertForMaskedLM or a
        BertForNextSentencePrediction; or such a class of its family.
      classifier: a head instead of pretraining heads, which decides the class. `read_pretrained` must then ignore the
        head.
      further_heads: whether the model has heads that no class of Transformers has. An empty tensor as bias then makes
        classes with a classifier refuse the folder, instead of adding a random head.
      further_files: contents of further files, by name.

    Raises:
      FileExistsError: when the folder is not empty.
      PretrainedError: for unsupported poolings and modules, which would be lost.
      WeightsError: for variants that Transformers does not have, and parameters that do not fit the config.
      ValueError: for a classifier together with pretraining heads; for one of texts on an encoder without a pooler, or
        one of tokens on an encoder with a pooler.
    """
    config, params, heads, vocabulary = pretrained[:4]
    family = checked_family(config)
    if classifier is not None:
        of_texts = classifier.head.reads_pooler
        of_each = not of_texts and not family.dense_heads
        misfit = (config.pools, config.use_pooler) != (of_texts, of_texts or of_each)
        if heads is not None or (misfit and classifier.program is None):
            pooler = "without" if not (of_texts or of_each) else "with"
            raise ValueError(
                f"a classifier needs an encoder {pooler} a pooler{' of each token' * of_each}, and no pretraining heads"
            )
    folder = Path(folder).expanduser()
    refuse_contents(folder)
    size = int(np.shape(params["tokens"]["embedding"])[0])
    tensors = to_huggingface(params, config, size, heads)
    own = {name: family.rules.supported[name][0] for name in _OWN if name in family.rules.supported}
    settings = {
        # A pipeline takes a class that is named here where its own class refuses the folder.
        "architectures": [] if further_heads else [architecture(config, heads, classifier)],
        "pad_token_id": vocabulary.id_of(vocabulary.special.pad),
        **settings_of(family, vars(config) | ({"pooler_input": "cls"} if config.pooler_input == "each" else {})),
        **{name: config.position_rows for name, ours in family.fields.items() if ours == "max_positions"},
        **{name: config.hidden_width for name, ours in family.fields.items() if ours == "feed_forward_width"},
        **{name: config.embedded_width for name, ours in family.fields.items() if ours == "embedding_width"},
        **own,
        **(layer_kind_settings(config) if family.layer_kinds else {}),
        "initializer_range": 0.02,
        "vocab_size": size,
    }
    if heads is None and (classifier is not None or further_heads):
        tensors = {
            name if name.startswith(family.outside) else f"{family.base}.{name}": tensor
            for name, tensor in tensors.items()
        }
    if further_heads:
        tensors |= {name: np.zeros(0, np.float32) for name in family.barriers}
    if classifier is not None:
        prefix = head_prefix(config, classifier)
        if classifier.program is None and classifier.head.reads_pooler:
            pooler = f"{family.base}.{family.names.pooler}"
            tensors = {name.replace(pooler, family.classifier_pooler): tensor for name, tensor in tensors.items()}
        if classifier.program is not None:
            tensors |= {name: np.zeros(0, np.float32) for name in family.barriers}
            settings["auto_map"] = {
                "AutoModelForSequenceClassification": f"{classifier.program}.{architecture(config, None, classifier)}"
            }
        bias = np.array(classifier.bias, np.float32)
        tensors[f"{prefix}weight"] = np.array(classifier.kernel.T, np.float32, order="C")
        tensors[f"{prefix}bias"] = bias if classifier.program is None else bias[None]
        settings |= {"problem_type": classifier.problem} if classifier.head.reads_pooler else {}
        if classifier.activation is not None:
            settings["sentence_transformers"] = {"activation_fn": classifier.activation}
        if classifier.head.name in family.dropout:
            settings[family.dropout[classifier.head.name]] = classifier.dropout_rate
        if classifier.names:
            settings |= label_settings(classifier.names)
    documents = {CONFIG: settings, **module_files(config.width, *pretrained[4:])}
    length = pretrained.max_length or config.max_positions
    tokenizer = functools.partial(vocabulary.save, max_length=length)
    write_folder(folder, tensors, documents, write_tokenizer=tokenizer, files=further_files or {})


def architecture(config: BertConfig, heads: Params | None, classifier: Classifier | None = None) -> str:
    """Transformers' name of an encoder with these pretraining heads, or with a classifier."""
    return families()[config.model_type].prefix + _class(heads, classifier)


def _class(heads: Params | None, classifier: Classifier | None) -> str:
    if classifier is not None:
        return classifier.head.name
    if heads is None:
        return "Model"
    if "replaced" in heads:
        return "ForPreTraining"
    if "follows" not in heads:
        return "ForMaskedLM"
    return "ForPreTraining" if "token_bias" in heads else "ForNextSentencePrediction"


def head_prefix(config: BertConfig, classifier: Classifier) -> str:
    """The first part of the names of a head's tensors. A program's class has BERT's names in every family."""
    family = families()[config.model_type]
    if classifier.head is OF_SPANS:
        return family.answers
    own = classifier.head.reads_pooler and classifier.program is None
    return family.classifier if own else classifier.head.prefix


def _config_of(file: Path, *, exported: bool) -> tuple[EncoderFamily, BertConfig, int]:
    """The family, the model's shape, and V. Args: as for `fields_of`."""
    known = families()
    family, fields, size = fields_of(file, known, BertConfig, _NEEDED, default="bert", exported=exported)
    if "padding_id" in fields:  # the first position embeddings are those up to that of padding
        if fields["padding_id"] is None:
            raise PretrainedError(
                f"{file}: pad_token_id null, expected the number of a token: positions begin after it"
            )
        fields["max_positions"] = fields.get("max_positions", BertConfig.max_positions) - fields["padding_id"] - 1
    if family.layer_kinds:
        fields |= layer_kind_fields(file, read_object(file))
        if not fields["local_layers"]:
            fields.pop("local_window", None)  # nothing reads it
    (model_type,) = family.rules.supported["model_type"]
    with errors_name(file):
        config = BertConfig(**{**family.fixed, **family.defaults, **fields, "model_type": model_type})
    return family, config, size


_NEEDED = ("num_layers", "num_heads", "width", "feed_forward_width", "embedding_width", "padding_id")
_OWN = ("model_type", "hidden_act", "activation", "hidden_activation", "position_embedding_type")
"""Settings of config.json that always have their only supported value."""
