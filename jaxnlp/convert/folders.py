"""Finds, reads and writes folders of pretrained weights, as Hugging Face Transformers does."""

import contextlib
import functools
import json
import re
import types
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from jaxnlp.convert import encoders
from jaxnlp.convert.adapters import (
    ADAPTER,
    ADAPTER_CONFIG,
    SETTINGS,
    add_factors,
    class_of_task,
    num_embeddings,
    without_other_heads,
)
from jaxnlp.convert.settings import REFUSED_FILES
from jaxnlp.convert.tensors import WeightsError
from jaxnlp.corpus import errors_as
from jaxnlp.input_files.json_objects import parse_json
from jaxnlp.input_files.web_addresses import is_web_address
from jaxnlp.saving.atomic_files import new_folder
from jaxnlp.text import marian_tokenizer, tokenizer_files
from jaxnlp.text.foreign_settings import ForeignSettings

WEIGHTS, INDEX, CONFIG = "model.safetensors", "model.safetensors.index.json", "config.json"
GENERATION = "generation_config.json"
MODULES, EMBEDDINGS = "modules.json", "config_sentence_transformers.json"
_SENTENCE_TRANSFORMERS = ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
LENGTH_FILES = tuple(f"sentence_{family}_config.json" for family in _SENTENCE_TRANSFORMERS)
"""Names of sentence-transformers' file with the maximum length; the first that exists is read."""
LENGTH_FILE = LENGTH_FILES[0]
EXPORTED = "jaxnlp.json"
"""File of an exported model with heads: its task, its model's config and its processor, for this library."""
_PARTS = (
    CONFIG,
    GENERATION,
    WEIGHTS,
    INDEX,
    *tokenizer_files.FILES,
    *marian_tokenizer.FILES,
    *LENGTH_FILES,
    *REFUSED_FILES,
)
_FILES = (*_PARTS, MODULES, EMBEDDINGS, EXPORTED, ADAPTER_CONFIG, "*.safetensors")
DOWNLOADED = (*_FILES, *(f"*/{name}" for name in _PARTS))
"""Patterns of the files to download from the Hub; sentence-transformers may put the encoder and the pooling into
subfolders."""


_OF_FLAX = "flax_model.msgpack"
_SHARD = re.compile(r"[\w.-]+\.safetensors")
"""The name of a file with a part of the tensors, never a path."""


class _Vocabulary(Protocol):
    @property
    def size(self) -> int: ...


V = TypeVar("V", bound=_Vocabulary)


class PretrainedError(ValueError):
    """The folder has no weights, or weights that this library cannot read; the message names the reason and the
    remedy."""


def find_folder(path: str | Path) -> Path:
    """The folder of this path, or a downloaded one of this name on the Hugging Face Hub; for an adapter of PEFT without
    a config, the folder of its model, to which `read_tensors` adds it.

    Raises: PretrainedError when neither exists.
    """
    folder = _given_folder(str(path))
    return _base_of(folder) if _is_adapter(folder) and not (folder / CONFIG).is_file() else folder


def is_adapter(name: str) -> bool:
    """Whether this name, for which `find_folder` has found a folder, is an adapter of PEFT."""
    return _is_adapter(_given_folder(name, again=True))


def adapted_class(name: str) -> str | None:
    """The class of an adapter's model, such as BertForTokenClassification, by PEFT's name of its task; None if that
    does not name one, and for an adapter with a config.json.

    Args: name: for which `find_folder` has found a folder.
    """
    folder = _given_folder(name, again=True)
    if not _is_adapter(folder) or (folder / CONFIG).is_file():
        return None
    model_type = read_object(_base_of(folder) / CONFIG).get("model_type")
    return class_of_task(str(model_type), str(read_object(folder / ADAPTER_CONFIG).get("task_type")))


def _is_adapter(folder: Path) -> bool:
    return (folder / ADAPTER_CONFIG).is_file() and not any((folder / name).is_file() for name in (WEIGHTS, INDEX))


def _base_of(adapter: Path) -> Path:
    """The folder of an adapter's model."""
    file = adapter / ADAPTER_CONFIG
    base = read_object(file).get("base_model_name_or_path")
    if not isinstance(base, str) or not base:
        raise PretrainedError(f"{file}: expected the folder of a model as base_model_name_or_path, got {base!r}")
    try:
        found = _given_folder(base)
    except PretrainedError as error:
        raise PretrainedError(f"{file}: base_model_name_or_path: {error}") from error
    if _is_adapter(found):
        raise PretrainedError(f"{file}: base_model_name_or_path {base} is an adapter, too, expected a model")
    return found


def _downloaded(name: str, *, again: bool) -> Path:
    """The folder of a name on the Hub; again, without the network."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError

    fetch = functools.partial(snapshot_download, name, allow_patterns=list(DOWNLOADED))
    if again:
        return Path(fetch(local_files_only=True))
    # The errors of the Hub and of the network libraries have no common base.
    try:
        return Path(fetch())
    except HFValidationError as error:
        raise PretrainedError(f"there is no folder {name}, which is no name on the Hugging Face Hub either") from error
    except Exception as error:
        try:
            return Path(fetch(local_files_only=True))
        except Exception:  # the cache does not have it either: the first error says why the download failed
            first = str(error).partition("\n")[0].rstrip(". ")
            raise PretrainedError(
                f"there is no folder {name}, and it could not be fetched from the Hugging Face Hub: "
                f"{type(error).__name__}: {first}; check the connection, or give a folder of weights instead of the "
                "name (in training, --init-from FOLDER)"
            ) from error


def _given_folder(path: str, *, again: bool = False) -> Path:
    """The folder of this path or this name on the Hub, perhaps an adapter. Args: again: whether it was found before."""
    folder = Path(path).expanduser()
    if folder.is_dir():
        return folder
    name = str(path)
    local = folder.parent != Path() and folder.parent.is_dir()  # a misspelt folder, not a name on the Hub
    if folder.is_absolute() or name.startswith((".", "~")) or name.count("/") > 1 or local:
        if is_web_address(name):
            its_name = "/".join(name.split("/")[3:5]) or "OWNER/NAME"
            raise PretrainedError(f"{name} is a web address; give the name on the Hugging Face Hub, such as {its_name}")
        raise PretrainedError(f"there is no folder {name}")
    return _downloaded(name, again=again)


def read_json(file: Path) -> Any:
    """A file of a folder of weights. Raises: PretrainedError when it is missing or not JSON."""
    try:
        return parse_json(file.read_text(encoding="utf-8"))
    except (FileNotFoundError, IsADirectoryError) as error:
        raise PretrainedError(f"{file.parent} is not a pretrained model: it has no {file.name}") from error
    except ValueError as error:
        raise PretrainedError(f"{file} is not JSON: {error}") from error


def read_object(file: Path) -> dict[str, Any]:
    """The object in a JSON file. Raises: PretrainedError when the file is missing or has other content."""
    value = read_json(file)
    if not isinstance(value, dict):
        raise PretrainedError(f"{file}: expected an object, got {type(value).__name__}")
    return value


def refuse_settings(file: Path, settings: Mapping[str, Any], known: ForeignSettings) -> None:
    """Raises: PretrainedError, with the file, for unsupported or unknown settings."""
    with errors_as(PretrainedError):
        known.check(file, settings)


def refuse_files(folder: Path, *, read: tuple[str, ...] = ()) -> None:
    """Raises: PretrainedError for a file that changes what the model computes, and that this library does not read.

    Args: read: names of such files that are read for this model.
    """
    for name, reason in REFUSED_FILES.items():
        if name == ADAPTER_CONFIG and _is_adapter(folder):
            continue
        if name not in read and (folder / name).is_file():
            raise PretrainedError(f"{folder / name}: not supported: {reason}")


def write_folder(
    folder: Path,
    tensors: Mapping[str, np.ndarray],
    objects: Mapping[str, Any],
    *,
    write_tokenizer: Callable[[Path], None] = lambda folder: None,
    files: Mapping[str, bytes] = types.MappingProxyType({}),
) -> None:
    """Writes a folder of weights atomically.

    Args:
      folder: new or empty.
      tensors: of any shapes [...], by name.
      objects: contents of JSON files, by name.
      write_tokenizer: writes the tokenizer's files into a folder.
      files: contents of further files, by name.

    Raises: OSError when it cannot be written.
    """
    with new_folder(folder) as partial:
        save_file(dict(tensors), partial / WEIGHTS, metadata={"format": "pt"})
        (partial / WEIGHTS).chmod(0o644)  # safetensors lets only the owner read it
        write_tokenizer(partial)
        texts = {name: (json.dumps(held, indent=2) + "\n").encode() for name, held in objects.items()}
        for name, content in {**texts, **files}.items():
            (partial / name).parent.mkdir(exist_ok=True)
            (partial / name).write_bytes(content)


@contextlib.contextmanager
def errors_name(place: Path) -> Iterator[None]:
    """A context in which errors of settings and of tensors start with the file or the folder."""
    try:
        yield
    except WeightsError as error:
        raise WeightsError(f"{place}: {error}") from error
    except ValueError as error:
        raise PretrainedError(f"{place}: {error}") from error


def read_vocabulary(folder: Path, read: Callable[[Path], V], embeddings: int) -> V:
    """The tokenizer of a folder.

    Args:
      folder: with the files.
      read: reads them.
      embeddings: their number in the model.

    Raises: PretrainedError when the tokenizer is missing or not supported, or has more tokens than the model.
    """
    try:
        vocabulary = read(folder)
    except (FileNotFoundError, ValueError) as error:
        raise PretrainedError(str(error)) from error
    if vocabulary.size > embeddings:
        raise PretrainedError(
            f"{folder}: the tokenizer has {vocabulary.size} tokens, but the model has {embeddings} embeddings"
        )
    return vocabulary


def read_tensors(folder: Path, name: str, *, ignore: tuple[str, ...] = ()) -> dict[str, np.ndarray]:
    """The tensors of a folder's safetensors files, by name, with their shapes [...] in the file.

    Args:
      folder: with the files.
      name: the user's, for messages, and for an adapter to add.
      ignore: names, or their prefixes, of tensors to leave out.

    Raises: PretrainedError when the files are missing or damaged, and for pickles and unsupported types.
    """
    given = _given_folder(name, again=True)
    adapter = given if _is_adapter(given) else None
    if adapter == folder:
        folder = _base_of(folder)
    # Where both exist, Transformers reads the single file.
    if (folder / INDEX).is_file() and not (folder / WEIGHTS).is_file():
        weight_map = read_object(folder / INDEX).get("weight_map")
        if not isinstance(weight_map, dict) or not weight_map:
            raise PretrainedError(f"{folder / INDEX}: expected weight_map, an object from tensors to files")
        names = sorted(set(map(str, weight_map.values())))
        strange = [file for file in names if not _SHARD.fullmatch(file)]
        if strange:
            raise PretrainedError(
                f"{folder / INDEX}: expected the names of .safetensors files next to it, got {strange[0]!a:.100}"
            )
        files = [folder / file for file in names]
    else:
        weight_map, files = None, [folder / WEIGHTS]
    if weight_map is None and not files[0].is_file():
        pickled = sorted(file.name for file in folder.iterdir() if file.suffix in (".bin", ".pt", ".pth", ".ckpt"))
        if pickled:
            raise PretrainedError(
                f"{folder} has its weights in {', '.join(pickled)}, a pickle, which can run any code when it is read. "
                "If you trust it, write it as safetensors, with PyTorch and Transformers:\n"
                f"{_conversion(folder, str(folder), str(folder))}"
            )
        if not Path(name).expanduser().is_dir():
            inputs = "AutoImageProcessor" if (folder / "preprocessor_config.json").is_file() else "AutoTokenizer"
            raise PretrainedError(
                f"{name} has no weights as safetensors. Weights in a pickle are not fetched, since reading one can "
                "run any code; if you trust them, write them as safetensors, with PyTorch and Transformers:\n"
                f"{_conversion(folder, name, 'FOLDER', inputs)}"
            )
        if (folder / _OF_FLAX).is_file():
            raise PretrainedError(
                f"{folder} has its weights in {_OF_FLAX}, which Transformers 4 reads with Flax and PyTorch. Write it "
                "there as safetensors, with the class that its config.json names: "
                f"CLASS.from_pretrained({str(folder)!r}, from_flax=True).save_pretrained('FOLDER')"
            )
        raise PretrainedError(f"{folder} has no weights: neither {WEIGHTS} nor {INDEX}")
    tensors: dict[str, np.ndarray] = {}
    for file in files:
        with _opened(file) as held:
            tensors |= {name: _tensor(held, name, file) for name in held.keys()}  # noqa: SIM118 (not a dict)
    if weight_map is not None and tensors.keys() != weight_map.keys():
        different = sorted(tensors.keys() ^ weight_map.keys())
        raise PretrainedError(f"{folder / INDEX} and the files it names differ in tensors: {', '.join(different[:10])}")
    if adapter is not None:
        tensors = _with_adapter(tensors, adapter, folder)
    return {name: tensor for name, tensor in tensors.items() if not name.startswith(ignore)}


def _with_adapter(tensors: dict[str, np.ndarray], adapter: Path, folder: Path) -> dict[str, np.ndarray]:
    """The tensors of a model's folder with an adapter's."""
    settings = read_object(adapter / ADAPTER_CONFIG)
    refuse_settings(adapter / ADAPTER_CONFIG, settings, SETTINGS)
    with _opened(adapter / ADAPTER) as held:
        stored = {name: _tensor(held, name, adapter / ADAPTER) for name in held.keys()}  # noqa: SIM118 (not a dict)
    model_type, kind = str(read_object(folder / CONFIG).get("model_type")), adapted_class(str(adapter))
    if kind is not None and model_type in encoders.families():
        tensors = without_other_heads(tensors, model_type, kind)
    with errors_name(adapter / ADAPTER):
        found = add_factors(tensors, stored, settings, model_type)
    before, now = (num_embeddings(held, model_type) for held in (tensors, found))
    if before != now and not (adapter / CONFIG).is_file():
        raise PretrainedError(
            f"{adapter}: the adapter has {now} embeddings, but its base has {before}, and only the resized model's "
            f"{CONFIG} and tokenizer say what they are; write both into the folder: "
            "model.config.save_pretrained(FOLDER), tokenizer.save_pretrained(FOLDER)"
        )
    return found


def _conversion(folder: Path, source: str, target: str, *further: str) -> str:
    """The command that writes weights as safetensors, with the class of their config: AutoModel would drop a head."""
    classes = read_object(folder / CONFIG).get("architectures") or ["AutoModel"]
    first = str(classes[0]) if str(classes[0]).isidentifier() else "AutoModel"
    saved = "; ".join(f"{name}.from_pretrained('{source}').save_pretrained('{target}')" for name in (first, *further))
    return f'  python -c "from transformers import {", ".join((first, *further))}; {saved}"'


def _tensor(held: Any, name: str, file: Path) -> np.ndarray:
    try:
        return held.get_tensor(name)
    # Safetensors uses types that NumPy does not support.
    except (AttributeError, TypeError) as error:
        raise PretrainedError(
            f"{file}: {name} is {held.get_slice(name).get_dtype()}, which cannot be read; write the weights as "
            "float32, float16 or bfloat16"
        ) from error


@contextlib.contextmanager
def _opened(file: Path) -> Iterator[Any]:
    try:
        # safe_open calls every file missing that it cannot open; open says why.
        with file.open("rb"), safe_open(file, "np") as held:
            yield held
    except FileNotFoundError as error:
        raise PretrainedError(f"{file} is missing") from error
    except SafetensorError as error:
        remedy = "copy or download it again (git lfs pull, in a clone of its repository)"
        raise PretrainedError(f"{file} is not a safetensors file, or is damaged; {remedy}: {error}") from error
