"""The files of sentence-transformers next to an encoder: modules, pooling and maximum length."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxnlp.convert.folders import (
    CONFIG,
    EMBEDDINGS,
    LENGTH_FILE,
    LENGTH_FILES,
    MODULES,
    PretrainedError,
    read_json,
    read_object,
    refuse_settings,
)
from jaxnlp.convert.settings import MODULE, NORMALIZE, POOLING, POOLING_MODES, SENTENCE_MODEL, TRANSFORMER
from jaxnlp.corpus import errors_as
from jaxnlp.text.embedding_settings import EmbeddingSettings
from jaxnlp.text.foreign_settings import ForeignSettings


def encoder_folder(folder: Path) -> Path:
    """The subfolder in which sentence-transformers stored the encoder."""
    if (folder / CONFIG).is_file():
        return folder
    return dict(modules_of(folder)).get("Transformer", folder)


def modules_of(folder: Path) -> list[tuple[str, Path]]:
    """The modules of a sentence-transformers model, in order: their types, such as Pooling, and their folders. The
    older type CLIPModel is a Transformer.

    Raises: PretrainedError for modules of other packages, and unless they are a Transformer, one pooling, and others.
    """
    file = folder / MODULES
    if not file.is_file():
        return []
    modules = read_json(file)
    if not isinstance(modules, list) or not all(isinstance(module, dict) for module in modules):
        raise PretrainedError(f"{file}: expected a list of objects, as sentence-transformers writes it")
    types = [str(module.get("type", "")) for module in modules]
    foreign = [kind for kind in types if not kind.startswith("sentence_transformers.")]
    if foreign:
        raise PretrainedError(f"{file}: code of other packages is not supported: {', '.join(foreign)}")
    for module in modules:
        refuse_settings(file, module, MODULE)
    kinds = [kind.rpartition(".")[2] for kind in types]
    kinds = ["Transformer" if kind == "CLIPModel" else kind for kind in kinds]
    if (
        kinds[:1] != ["Transformer"]
        or kinds.count("Pooling") > 1
        or kinds[1:2] != ["Pooling"][: kinds.count("Pooling")]
    ):
        raise PretrainedError(f"{file}: expected the modules Transformer, Pooling and others, got {', '.join(kinds)}")
    return [(kind, folder / str(module.get("path", ""))) for kind, module in zip(kinds, modules, strict=True)]


def modules_after_pooling(folder: Path) -> tuple[str, ...]:
    """The modules after the pooling that change embeddings, such as Normalize."""
    modules = [one for one in modules_of(folder) if one[0] not in ("Transformer", "Pooling", "Dropout")]
    for kind, module in modules:
        if kind == "Normalize" and (module / CONFIG).is_file():
            refuse_settings(module / CONFIG, read_object(module / CONFIG), NORMALIZE)
    return tuple(kind for kind, _ in modules)


def pooling_of(folder: Path) -> str | None:
    """The pooling of a text's tokens, as sentence-transformers names it: `cls`, `mean`, `mean and max`; None = not
    specified."""
    module = dict(modules_of(folder)).get("Pooling")
    if module is None:
        return None
    settings = read_object(module / CONFIG)
    refuse_settings(module / CONFIG, settings, POOLING)
    mode = settings.get("pooling_mode")
    if mode is None:
        mode = [name for key, name in POOLING_MODES.items() if settings.get(key)] or "mean"
    return mode if isinstance(mode, str) else " and ".join(map(str, mode))


def embedding_settings(folder: Path) -> EmbeddingSettings:
    """Prompts and truncation of embeddings. Raises: PretrainedError when they are not supported."""
    module, file = dict(modules_of(folder)).get("Pooling"), folder / EMBEDDINGS
    pooling = {} if module is None else read_object(module / CONFIG)
    settings = read_object(file) if file.is_file() and (folder / MODULES).is_file() else {}
    refuse_settings(file, settings, SENTENCE_MODEL)
    prompts = settings.get("prompts") or {}
    if not isinstance(prompts, dict):
        raise PretrainedError(f"{file}: expected prompts by name, got {prompts!r}")
    with errors_as(PretrainedError, file):
        return EmbeddingSettings(
            tuple((name, "" if text is None else text) for name, text in prompts.items()),
            settings.get("default_prompt_name"),
            pooling.get("include_prompt", True),
            settings.get("truncate_dim"),
            settings.get("similarity_fn_name"),
        )


def score_activation(folder: Path, settings: Mapping[str, Any]) -> str | None:
    """The activation of a cross-encoder's scores, such as Sigmoid, which is not part of its class in Transformers.

    Args:
      folder: of the model.
      settings: of its config.json.

    Returns: the name of its class in PyTorch; None = no file names it.
    """
    whole = read_object(folder / EMBEDDINGS) if (folder / EMBEDDINGS).is_file() else {}
    inner = settings.get("sentence_transformers")
    given = (
        whole.get("activation_fn"),
        inner.get("activation_fn") if isinstance(inner, dict) else None,
        settings.get("sbert_ce_default_activation_function"),
    )
    return next((str(name).rpartition(".")[2] for name in given if name is not None), None)


def module_files(
    width: int,
    pooling: str | None,
    max_length: int | None,
    after_pooling: Sequence[str],
    embeddings: EmbeddingSettings,
) -> dict[str, Any]:
    """Pooling, maximum length and prompts as sentence-transformers writes them: contents by path.

    Args:
      width: width of a token's vector.
      pooling, max_length, after_pooling, embeddings: as in `Pretrained`.

    Raises: PretrainedError for unsupported poolings and modules.
    """
    strange = [kind for kind in after_pooling if kind != "Normalize"]
    if pooling not in (None, "pooler", *POOLING_MODES.values()):
        strange.insert(0, f"the pooling {pooling}")
    if strange:
        raise PretrainedError(
            f"this model computes embeddings with {', '.join(strange)}, which is not supported; to save without, use "
            'pretrained._replace(pooling="mean", modules_after_pooling=())'
        )
    kinds = ["Transformer", *(["Pooling"] if pooling in POOLING_MODES.values() else []), *after_pooling]
    files: dict[str, Any] = {}
    if len(kinds) > 1:
        files[MODULES] = [
            {
                "idx": index,
                "name": str(index),
                "path": f"{index}_{kind}" if index else "",
                "type": f"sentence_transformers.models.{kind}",
            }
            for index, kind in enumerate(kinds)
        ]
    if "Pooling" in kinds:
        modes = {key: mode == pooling for key, mode in POOLING_MODES.items() if mode in _FIRST_MODES or mode == pooling}
        include = {} if embeddings.include_prompt else {"include_prompt": False}
        files[f"1_Pooling/{CONFIG}"] = {"word_embedding_dimension": width, **modes, **include}
    if files or max_length is not None:
        # Required if there are modules. The tokenizer handles letter case.
        files[LENGTH_FILE] = {"max_seq_length": max_length, "do_lower_case": False}
    written = {
        "prompts": dict(embeddings.prompts),
        "default_prompt_name": embeddings.default_prompt,
        "truncate_dim": embeddings.truncate_dim,
        "similarity_fn_name": embeddings.similarity_fn_name,
    }
    if files and any(written.values()):
        files[EMBEDDINGS] = written
    return files


_FIRST_MODES = ("cls", "mean", "max", "mean_sqrt_len_tokens")
"""Poolings that every version of sentence-transformers writes."""


def input_settings(folder: Path, rules: ForeignSettings = TRANSFORMER) -> tuple[int | None, bool]:
    """The maximum length in tokens, and whether texts are lowercased first. Args: rules: of the settings."""
    file = next((folder / name for name in LENGTH_FILES if (folder / name).is_file()), None)
    if file is None:
        return None, False
    settings = read_object(file)
    refuse_settings(file, settings, rules)
    max_length = settings.get("max_seq_length")
    if max_length is not None and (type(max_length) is not int or max_length < 3):
        raise PretrainedError(f"{file}: max_seq_length must be at least 3, got {max_length!r}")
    return max_length, bool(settings.get("do_lower_case"))


def tokenizer_max_length(folder: Path, most: int) -> int | None:
    """The maximum length in the tokenizer's settings: newer sentence-transformers writes it only there."""
    file = folder / "tokenizer_config.json"
    settings = read_object(file) if file.is_file() else {}
    max_length = settings.get("model_max_length", settings.get("max_len"))
    return max_length if type(max_length) is int and 3 <= max_length < most else None
