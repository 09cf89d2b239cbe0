"""The files that sentence-transformers writes next to an encoder: modules, pooling and maximum length."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jaxnlp.convert.folders import CONFIG, LENGTH, MODULES, PretrainedError, read_json, read_object


def encoder_folder(folder: Path) -> Path:
    """The subfolder in which sentence-transformers stored the encoder."""
    if (folder / CONFIG).is_file():
        return folder
    return dict(modules_of(folder)).get("Transformer", folder)


def modules_of(folder: Path) -> list[tuple[str, Path]]:
    """The modules of a sentence-transformers model, in order: their types, such as Pooling, and their folders."""
    if not (folder / MODULES).is_file():
        return []
    modules = read_json(folder / MODULES)
    if not isinstance(modules, list) or not all(isinstance(module, dict) for module in modules):
        raise PretrainedError(f"{folder / MODULES}: expected a list of objects, as sentence-transformers writes it")
    return [
        (str(module.get("type", "")).rpartition(".")[2], folder / str(module.get("path", ""))) for module in modules
    ]


_MODES = {"pooling_mode_cls_token": "cls", "pooling_mode_mean_tokens": "mean"}
"""Sentence-transformers' names of the supported poolings, and ours."""


def pooling_of(folder: Path) -> str | None:
    """The pooling of a text's tokens: `cls`, `mean`, or another name of sentence-transformers; None = not specified."""
    place = dict(modules_of(folder)).get("Pooling")
    if place is None:
        return None
    settings = read_object(place / CONFIG)
    mode = settings.get("pooling_mode")
    if isinstance(mode, str):
        return mode
    if isinstance(mode, list):
        return " and ".join(map(str, mode)) or None
    modes = [name for name, chosen in settings.items() if name.startswith("pooling_mode_") and chosen]
    return " and ".join(_MODES.get(name, name.removeprefix("pooling_mode_")) for name in modes) or None


def module_files(
    width: int, pooling: str | None, max_length: int | None, after_pooling: Sequence[str]
) -> dict[str, Any]:
    """Pooling and maximum length as sentence-transformers writes them: contents by path.

    Args:
      width: width of a token's vector.
      pooling: `cls`, `mean`, `pooler` or None, as in `Pretrained`.
      max_length: maximum length in tokens; None = unknown.
      after_pooling: modules after the pooling.

    Raises: PretrainedError for poolings and modules that this library does not support.
    """
    strange = [kind for kind in after_pooling if kind != "Normalize"]
    if pooling not in (None, "pooler", *_MODES.values()):
        strange.insert(0, f"the pooling {pooling}")
    if strange:
        raise PretrainedError(
            f"this model computes embeddings with {', '.join(strange)}, which is not supported; to save without, use "
            'pretrained._replace(pooling="mean", modules_after_pooling=())'
        )
    kinds = ["Transformer", *(["Pooling"] if pooling in _MODES.values() else []), *after_pooling]
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
            "word_embedding_dimension": width,
            **{mode: _MODES.get(mode) == pooling for mode in modes},
        }
    if files or max_length is not None:
        # Required if there are modules. The tokenizer handles letter case.
        files[LENGTH] = {"max_seq_length": max_length, "do_lower_case": False}
    return files


def input_settings(folder: Path) -> tuple[int | None, bool]:
    """The maximum length in tokens, and whether texts are lowercased first."""
    if not (folder / LENGTH).is_file():
        return None, False
    settings = read_object(folder / LENGTH)
    max_length = settings.get("max_seq_length")
    if max_length is not None and (type(max_length) is not int or max_length < 3):
        raise PretrainedError(f"{folder / LENGTH}: max_seq_length must be at least 3, got {max_length!r}")
    return max_length, bool(settings.get("do_lower_case"))


def tokenizer_max_length(folder: Path, most: int) -> int | None:
    """The maximum length in the tokenizer's settings: newer sentence-transformers writes it only there."""
    file = folder / "tokenizer_config.json"
    max_length = read_object(file).get("model_max_length") if file.is_file() else None
    return max_length if type(max_length) is int and 3 <= max_length < most else None
