"""Folders of pretrained BERTs, as Hugging Face Transformers writes and reads them."""

import contextlib
import dataclasses
import functools
import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from jaxnlp.convert.bert import WeightsError, from_huggingface, to_huggingface
from jaxnlp.models.bert import BertConfig
from jaxnlp.text.wordpiece import PAD, WordPieceVocabulary
from jaxnlp.typing import Params

WEIGHTS, INDEX, CONFIG = "model.safetensors", "model.safetensors.index.json", "config.json"
MODULES, LENGTH = "modules.json", "sentence_bert_config.json"
_PARTS = (CONFIG, WEIGHTS, INDEX, "tokenizer.json", "tokenizer_config.json", "vocab.txt", LENGTH)
FILES = (*_PARTS, MODULES, "*.safetensors", *(f"*/{name}" for name in _PARTS))
"""Patterns of the files that are fetched by name; sentence-transformers may put the encoder and the pooling into
subfolders."""


class PretrainedError(ValueError):
    """A folder without a BERT, or with one that this library cannot read; the message says why and what to do."""


class Pretrained(NamedTuple):
    """A pretrained BERT.

    Attributes:
      config: shape.
      params: of `Bert`, NumPy arrays.
      heads: those of `PretrainingHeads` that the folder has: both heads', one's, or None.
      vocabulary: the tokenizer.
      pooling: how a text's vector is computed: `cls`, `mean`, for a run also `pooler`, or another name that
        sentence-transformers uses. None = unknown, as in folders that sentence-transformers did not write.
      longest: maximum length of a text in tokens; None = unknown.
      behind_pooling: modules of sentence-transformers after the pooling, such as `Normalize`, in order.
    """

    config: BertConfig
    params: Params
    heads: Params | None
    vocabulary: WordPieceVocabulary
    pooling: str | None = None
    longest: int | None = None
    behind_pooling: tuple[str, ...] = ()


class Classifier(NamedTuple):
    """The head of a BertForSequenceClassification: dropout and a dense layer, on the pooler's output.

    Attributes:
      kernel: [D, C] for C classes.
      bias: [C].
      dropout_rate: in training.
      names: of the classes, C of them.
    """

    kernel: np.ndarray
    bias: np.ndarray
    dropout_rate: float
    names: tuple[str, ...]


FIELDS = {
    "num_hidden_layers": "num_layers",
    "num_attention_heads": "num_heads",
    "hidden_size": "width",
    "intermediate_size": "feed_forward_width",
    "max_position_embeddings": "max_positions",
    "type_vocab_size": "num_segments",
    "hidden_dropout_prob": "dropout_rate",
    "attention_probs_dropout_prob": "attention_dropout_rate",
    "layer_norm_eps": "epsilon",
}
"""Fields of Transformers' config, and those of `BertConfig`."""
FIXED = {
    "model_type": "bert",
    "hidden_act": "gelu",
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "add_cross_attention": False,
}
"""Fields of Transformers' config of which this BERT supports one value."""


TASKS = {"bert": "jaxnlp.tasks.text_tasks:TextTasks"}
"""The task that pretrained weights are for, by the `model_type` of their config."""


def pretrained_task(folder_or_name: str | Path) -> str:
    """The class of the task that pretrained weights are for, as "module:Class".

    Raises: PretrainedError when it is not a folder of weights, or of a model that the library does not have.
    """
    file = _transformer_of(_folder_of(folder_or_name)) / CONFIG
    if not file.is_file():
        raise PretrainedError(f"{folder_or_name} is neither a training run nor pretrained weights: it has no {CONFIG}")
    found = _read_object(file).get("model_type")
    if found not in TASKS:
        raise PretrainedError(f"{file}: model_type must be one of {', '.join(TASKS)}, got {found!r}")
    return TASKS[found]


def load_pretrained(folder_or_name: str | Path, *, ignore: tuple[str, ...] = ()) -> Pretrained:
    """Reads a BERT from a folder that Transformers or sentence-transformers wrote, or from the Hugging Face Hub.

    Args:
      folder_or_name: a folder, or a name such as "google-bert/bert-base-uncased", which is fetched once and kept.
      ignore: names, or prefixes of names, of tensors to leave out, such as "classifier.".

    Raises:
      PretrainedError: when it is neither, or contains another model; for weights that are not safetensors.
      WeightsError: listing tensors that are missing, unknown or have other shapes.
    """
    whole = _folder_of(folder_or_name)
    folder = _transformer_of(whole)
    settings = _read_object(folder / CONFIG)
    config, size = _config_of(settings, folder / CONFIG)
    try:
        vocabulary = WordPieceVocabulary.of_folder(folder)
    except (FileNotFoundError, ValueError) as error:
        raise PretrainedError(str(error)) from error
    longest, lowered = _sentence_settings(folder)
    if longest is None and (whole / MODULES).is_file():
        longest = _tokenizers_longest(folder, config.max_positions)
    if lowered and not vocabulary.lowercase:
        raise PretrainedError(
            f"{folder / LENGTH} lowercases text, but its tokenizer is cased; set this in the tokenizer_config.json of "
            'the same folder: "do_lower_case": true, "strip_accents": false'
        )
    if vocabulary.size > size:
        raise PretrainedError(
            f"{folder}: the tokenizer has {vocabulary.size} tokens, but the model has {size} embeddings"
        )
    tensors = {
        name: tensor
        for name, tensor in _read_tensors(folder, str(folder_or_name)).items()
        if not name.startswith(ignore)
    }
    if not any(name.endswith("pooler.dense.weight") for name in tensors):
        config = dataclasses.replace(config, use_pooler=False)
    try:
        params, heads = from_huggingface(tensors, config, size)
    except WeightsError as error:
        raise WeightsError(f"{folder}: {error}") from error
    if vocabulary.size < size:
        config = dataclasses.replace(config, padded_vocabulary_size=size)
    kinds = [kind for kind, _ in _modules_of(whole)]
    behind = tuple(kind for kind in kinds if kind not in ("Transformer", "Pooling"))
    return Pretrained(config, params, heads, vocabulary, _pooling_of(whole), longest, behind)


def save_pretrained(
    folder: str | Path,
    pretrained: Pretrained,
    *,
    classifier: Classifier | None = None,
    beside: Mapping[str, bytes] | None = None,
) -> None:
    """Writes a folder that Transformers' `from_pretrained` reads, atomically.

    Where pooling or maximum length are known, the files of sentence-transformers that say so are written too, except
    for the pooling `pooler`, which sentence-transformers does not support.

    Args:
      folder: new, or empty.
      pretrained: without heads it becomes a BertModel, with both a BertForPreTraining, with one a BertForMaskedLM or
        a BertForNextSentencePrediction.
      classifier: in place of pretraining heads, and the folder becomes a BertForSequenceClassification. Its tensors
        begin with `classifier.`, so `load_pretrained` needs ignore=("classifier.",).
      beside: contents of further files, by name.

    Raises:
      FileExistsError: when the folder is not empty.
      PretrainedError: for poolings and modules that this library does not support: they would be lost.
      WeightsError: for variants that Transformers' BERT does not have, and parameters that do not fit the config.
      ValueError: for a classifier with pretraining heads, or on an encoder without a pooler.
    """
    config, params, heads, vocabulary = pretrained[:4]
    if classifier is not None and (heads is not None or not config.use_pooler):
        raise ValueError("a classifier needs an encoder with a pooler, and no pretraining heads")
    folder = Path(folder)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FileExistsError(f"{folder} exists and is not empty; give another directory")
    size = int(np.shape(params["tokens"]["embedding"])[0])
    tensors = to_huggingface(params, config, size, heads)
    settings = {
        "architectures": [architecture(heads, classifier)],
        **{theirs: getattr(config, ours) for theirs, ours in FIELDS.items()},
        "intermediate_size": config.feed_forward_width or 4 * config.width,
        **{name: value for name, value in FIXED.items() if name not in ("is_decoder", "add_cross_attention")},
        "initializer_range": 0.02,
        "pad_token_id": vocabulary.id_of(PAD),
        "vocab_size": size,
    }
    if classifier is not None:
        tensors = {f"bert.{name}": tensor for name, tensor in tensors.items()}
        tensors["classifier.weight"] = np.array(classifier.kernel.T, np.float32, order="C")
        tensors["classifier.bias"] = np.array(classifier.bias, np.float32)
        settings |= {
            "classifier_dropout": classifier.dropout_rate,
            "id2label": {str(label): name for label, name in enumerate(classifier.names)},  # gives num_labels too
            "label2id": {name: label for label, name in enumerate(classifier.names)},
        }
    documents = {CONFIG: settings, **_sentence_files(pretrained)}
    files = {name: (json.dumps(held, indent=2) + "\n").encode() for name, held in documents.items()}
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        save_file(tensors, partial / WEIGHTS, metadata={"format": "pt"})
        vocabulary.save(partial, longest=config.max_positions)
        for name, content in {**files, **(beside or {})}.items():
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
        return "BertForSequenceClassification"
    if heads is None:
        return "BertModel"
    if "follows" not in heads:
        return "BertForMaskedLM"
    return "BertForPreTraining" if "token_bias" in heads else "BertForNextSentencePrediction"


def _folder_of(folder_or_name: str | Path) -> Path:
    folder = Path(folder_or_name)
    if folder.is_dir():
        return folder
    name = str(folder_or_name)
    local = folder.parent != Path() and folder.parent.is_dir()  # a misspelt folder, not a name on the Hub
    if folder.is_absolute() or name.startswith((".", "~")) or name.count("/") > 1 or local:
        raise PretrainedError(f"there is no folder {name}")
    from huggingface_hub import snapshot_download

    fetch = functools.partial(snapshot_download, name, allow_patterns=list(FILES))
    # The errors of the Hub and of the network libraries have no common base.
    try:
        return Path(fetch())
    except Exception as error:
        try:
            return Path(fetch(local_files_only=True))
        except Exception:
            raise PretrainedError(
                f"there is no folder {name}, and it could not be fetched from the Hugging Face Hub: "
                f"{type(error).__name__}: {error}"
            ) from error


def _transformer_of(folder: Path) -> Path:
    """Where sentence-transformers put the encoder within its folder."""
    if (folder / CONFIG).is_file():
        return folder
    return dict(_modules_of(folder)).get("Transformer", folder)


def _modules_of(folder: Path) -> list[tuple[str, Path]]:
    """What sentence-transformers does with a text, in order: kinds of modules, such as Pooling, and their folders."""
    if not (folder / MODULES).is_file():
        return []
    modules = _read_json(folder / MODULES)
    if not isinstance(modules, list) or not all(isinstance(module, dict) for module in modules):
        raise PretrainedError(f"{folder / MODULES}: expected a list of objects, as sentence-transformers writes it")
    return [
        (str(module.get("type", "")).rpartition(".")[2], folder / str(module.get("path", ""))) for module in modules
    ]


_MODES = {"pooling_mode_cls_token": "cls", "pooling_mode_mean_tokens": "mean"}
"""Sentence-transformers' names of the supported poolings, and ours."""


def _pooling_of(folder: Path) -> str | None:
    place = dict(_modules_of(folder)).get("Pooling")
    if place is None:
        return None
    settings = _read_object(place / CONFIG)
    mode = settings.get("pooling_mode")
    if isinstance(mode, str):
        return mode
    if isinstance(mode, list):
        return " and ".join(map(str, mode)) or None
    modes = [name for name, chosen in settings.items() if name.startswith("pooling_mode_") and chosen]
    return " and ".join(_MODES.get(name, name.removeprefix("pooling_mode_")) for name in modes) or None


def _sentence_files(pretrained: Pretrained) -> dict[str, Any]:
    """Pooling and maximum length as sentence-transformers writes them: contents by path.

    Raises: PretrainedError for poolings and modules that this library does not support.
    """
    pooling, longest, behind = pretrained[4:]
    strange = [kind for kind in behind if kind != "Normalize"]
    if pooling not in (None, "pooler", *_MODES.values()):
        strange.insert(0, f"the pooling {pooling}")
    if strange:
        raise PretrainedError(
            f"this model computes embeddings with {', '.join(strange)}, which is not supported; to save without, use "
            'pretrained._replace(pooling="mean", behind_pooling=())'
        )
    kinds = ["Transformer", *(["Pooling"] if pooling in _MODES.values() else []), *behind]
    files: dict[str, Any] = {}
    if len(kinds) > 1:
        files[MODULES] = [
            {
                "idx": place,
                "name": str(place),
                "path": f"{place}_{kind}" if place else "",
                "type": f"sentence_transformers.models.{kind}",
            }
            for place, kind in enumerate(kinds)
        ]
    if "Pooling" in kinds:
        modes = (*_MODES, "pooling_mode_max_tokens", "pooling_mode_mean_sqrt_len_tokens")
        files[f"1_Pooling/{CONFIG}"] = {
            "word_embedding_dimension": pretrained.config.width,
            **{mode: _MODES.get(mode) == pooling for mode in modes},
        }
    if files or longest is not None:
        # Required where there are modules. The tokenizer deals with letter case.
        files[LENGTH] = {"max_seq_length": longest, "do_lower_case": False}
    return files


def _sentence_settings(folder: Path) -> tuple[int | None, bool]:
    """The maximum length in tokens, and whether texts are lowercased first."""
    if not (folder / LENGTH).is_file():
        return None, False
    settings = _read_object(folder / LENGTH)
    longest = settings.get("max_seq_length")
    if longest is not None and (type(longest) is not int or longest < 3):
        raise PretrainedError(f"{folder / LENGTH}: max_seq_length must be at least 3, got {longest!r}")
    return longest, bool(settings.get("do_lower_case"))


def _tokenizers_longest(folder: Path, most: int) -> int | None:
    """The maximum length in the tokenizer's settings: newer sentence-transformers writes it only there."""
    file = folder / "tokenizer_config.json"
    longest = _read_object(file).get("model_max_length") if file.is_file() else None
    return longest if type(longest) is int and 3 <= longest < most else None


def _read_json(file: Path) -> Any:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (FileNotFoundError, IsADirectoryError) as error:
        raise PretrainedError(f"{file.parent} holds no pretrained model: it has no file {file.name}") from error
    except ValueError as error:
        raise PretrainedError(f"{file} is not JSON: {error}") from error


def _read_object(file: Path) -> dict[str, Any]:
    found = _read_json(file)
    if not isinstance(found, dict):
        raise PretrainedError(f"{file}: expected an object, got {type(found).__name__}")
    return found


def _config_of(settings: dict[str, Any], file: Path) -> tuple[BertConfig, int]:
    strange = [
        f"{name} {settings[name]!r}, expected {value!r}"
        for name, value in FIXED.items()
        if name in settings and settings[name] != value
    ]
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


_NEEDED = ("num_hidden_layers", "num_attention_heads", "hidden_size", "intermediate_size", "vocab_size")


def _read_tensors(folder: Path, name: str) -> dict[str, np.ndarray]:
    """The tensors in the encoder's folder; `name` is what the user gave, for messages."""
    # Where both exist, Transformers reads the single file.
    if (folder / INDEX).is_file() and not (folder / WEIGHTS).is_file():
        places = _read_object(folder / INDEX).get("weight_map")
        if not isinstance(places, dict) or not places:
            raise PretrainedError(f"{folder / INDEX}: expected weight_map, an object from tensors to files")
        files = sorted({folder / str(file) for file in places.values()})
    else:
        places, files = None, [folder / WEIGHTS]
    if places is None and not files[0].is_file():
        pickled = sorted(file.name for file in folder.iterdir() if file.suffix in (".bin", ".pt", ".pth", ".ckpt"))
        if pickled:
            raise PretrainedError(
                f"{folder} has its weights in {', '.join(pickled)}, a pickle, which can run any code when it is read. "
                'If you trust it, write it as safetensors, with PyTorch and Transformers:\n  python -c "from '
                f"transformers import BertModel; BertModel.from_pretrained('{folder}').save_pretrained('{folder}')\""
            )
        if not Path(name).is_dir():
            raise PretrainedError(
                f"{name} has no weights as safetensors. Weights in a pickle are not fetched, since reading one can "
                "run any code; if you trust them, write them as safetensors, with PyTorch and Transformers:\n"
                "  python -c "
                f"\"from transformers import BertModel, BertTokenizer; BertModel.from_pretrained('{name}')."
                f"save_pretrained('FOLDER'); BertTokenizer.from_pretrained('{name}').save_pretrained('FOLDER')\""
            )
        raise PretrainedError(f"{folder} has no weights: neither {WEIGHTS} nor {INDEX}")
    tensors: dict[str, np.ndarray] = {}
    for file in files:
        with _opened(file) as held:
            tensors |= {name: _tensor(held, name, file) for name in held.keys()}  # noqa: SIM118 (not a dict)
    if places is not None and tensors.keys() != places.keys():
        different = sorted(tensors.keys() ^ places.keys())
        raise PretrainedError(f"{folder / INDEX} and the files it names differ in tensors: {', '.join(different[:10])}")
    return tensors


def _tensor(held: Any, name: str, file: Path) -> np.ndarray:
    try:
        return held.get_tensor(name)
    # Safetensors asks NumPy for types that NumPy does not have.
    except (AttributeError, TypeError) as error:
        raise PretrainedError(
            f"{file}: {name} is {held.get_slice(name).get_dtype()}, which cannot be read; write the weights as "
            "float32, float16 or bfloat16"
        ) from error


@contextlib.contextmanager
def _opened(file: Path) -> Iterator[Any]:
    try:
        with safe_open(file, "np") as held:
            yield held
    except FileNotFoundError as error:
        raise PretrainedError(f"{file} is missing") from error
    except SafetensorError as error:
        raise PretrainedError(f"{file} is not a safetensors file, or is damaged: {error}") from error
