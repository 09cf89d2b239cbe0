"""The settings of layers with a sliding window in a config.json of Transformers."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jaxnlp.convert.folders import PretrainedError, errors_name
from jaxnlp.convert.layer_kinds import GLOBAL, LOCAL, kinds_of, local_layers
from jaxnlp.convert.tensors import WeightsError
from jaxnlp.models.llama import LlamaConfig

OF_MODEL = ("sliding_window",)
"""Settings of families with a window in all layers, or in none."""
OF_LAYERS = (*OF_MODEL, "use_sliding_window", "max_window_layers", "layer_types")
"""Settings of families with a window in some layers."""
_DEFAULT = 4_096


def window_fields(file: Path, settings: Mapping[str, Any], *, some: bool) -> dict[str, Any]:
    """The fields of `LlamaConfig` for local layers and their window.

    Args:
      file: the config.json, for messages.
      settings: its content.
      some: whether the family has windows in some of its layers, and not in all or none.

    Raises: PretrainedError for other kinds of layers, and for invalid numbers.
    """
    layers, window = settings["num_hidden_layers"], settings.get("sliding_window", _DEFAULT)
    kinds = settings.get("layer_types") if some else None
    if some and not settings.get("use_sliding_window", False):
        window = None
    if kinds is None:
        first = settings.get("max_window_layers", 28) if some else 0
        if type(first) is not int:
            raise PretrainedError(f"{file}: max_window_layers must be a whole number, got {first!r}")
        kinds = [GLOBAL if window is None or layer < first else LOCAL for layer in range(layers)]
    with errors_name(file):
        local = local_layers(kinds, layers)
    if local and (type(window) is not int or window < 1):
        raise PretrainedError(f"{file}: layers with a window need a sliding_window of at least 1, got {window!r}")
    return {"local_layers": local, "local_window": window} if local else {}


def window_settings(config: LlamaConfig, *, some: bool) -> dict[str, Any]:
    """The settings of config.json for these layers; `window_fields` reads them back. Raises: WeightsError for local
    layers that the family does not have."""
    local = config.local_layers
    window = config.local_window if local else None
    if not some:
        if local and len(local) < config.num_layers:
            raise WeightsError(
                f"Transformers' Mistral does not support model.local_layers = {local}: all layers or none"
            )
        return {"sliding_window": window}
    first = min(local, default=config.num_layers)
    return {
        "use_sliding_window": bool(local),
        "sliding_window": window,
        "max_window_layers": first,
        "layer_types": kinds_of(config),
    }
