"""The settings of local and global layers in Transformers' config.json, each kind with its rotary positions."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jaxnlp.convert.folders import PretrainedError
from jaxnlp.models.bert import BertConfig
from jaxnlp.models.llama import LlamaConfig
from jaxnlp.text.foreign_settings import ForeignSettings

SETTINGS = ("layer_types", "global_attn_every_n_layers", "rope_parameters", "global_rope_theta", "local_rope_theta")
"""The first and the third of Transformers 5, and the others of earlier versions."""
GLOBAL, LOCAL = "full_attention", "sliding_attention"
"""Layers in which a token sees all others, or only near ones."""
_FIELDS = {GLOBAL: "rotary_base", LOCAL: "local_rotary_base"}
_EARLIER = {GLOBAL: ("global_rope_theta", 160_000.0), LOCAL: ("local_rope_theta", 10_000.0)}
"""The earlier setting of each kind's base, and its default."""
_ROTARY = ForeignSettings(
    applied=("rope_theta",), supported={"rope_type": ("default",), "partial_rotary_factor": (1.0, 1)}, ignored={}
)
"""Rules for an object of `rope_parameters`."""


def layer_kind_fields(file: Path, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of `BertConfig` for local layers and rotary positions.

    Args:
      file: the config.json, for messages.
      settings: its content.

    Raises: PretrainedError for other kinds of layers or of rotary positions, and for numbers that do not fit.
    """
    strange, layers = [], settings["num_hidden_layers"]
    every = settings.get("global_attn_every_n_layers", 3)
    if type(every) is not int or every < 1:
        strange.append(f"global_attn_every_n_layers {every!r}, expected a whole number of at least 1")
        every = 1
    kinds = settings.get("layer_types")
    if kinds is None:
        kinds = [LOCAL if layer % every else GLOBAL for layer in range(layers)]
    local: tuple[int, ...] = ()
    try:
        local = local_layers(kinds, layers)
    except ValueError as error:
        strange.append(str(error))
    rotary, bases = settings.get("rope_parameters") or {}, {}
    for kind, (earlier, default) in _EARLIER.items():
        held = (rotary.get(kind) if isinstance(rotary, dict) else rotary) or {}
        if not isinstance(held, dict):
            strange.append(f"rope_parameters {rotary!r}, expected an object for each of {GLOBAL} and {LOCAL}")
            continue
        strange += [f"rope_parameters of {kind}: {problem}" for problem in _ROTARY.problems(held)]
        bases[kind] = held.get("rope_theta", settings.get(earlier, default))
        if type(bases[kind]) not in (int, float):
            strange.append(f"rope_theta of {kind} {bases[kind]!r}, expected a number")
    if isinstance(rotary, dict) and (others := sorted(rotary.keys() - _FIELDS.keys())):
        strange.append(f"rope_parameters of {', '.join(others)}")
    if strange:
        raise PretrainedError(f"{file}: layers that are not supported: {'; '.join(strange)}")
    return {"local_layers": local} | {name: bases[kind] for kind, name in _FIELDS.items() if local or kind == GLOBAL}


def layer_kind_settings(config: BertConfig) -> dict[str, Any]:
    """The settings of config.json for these layers; `layer_kind_fields` reads them back."""
    rotary = {kind: {"rope_type": "default", "rope_theta": getattr(config, name)} for kind, name in _FIELDS.items()}
    return {"layer_types": kinds_of(config), "rope_parameters": rotary}


def local_layers(kinds: Any, layers: int) -> tuple[int, ...]:
    """The indices of the local layers. Args: kinds: `layer_types`. Raises: ValueError if a layer has no kind."""
    if not isinstance(kinds, list) or len(kinds) != layers or any(kind not in (GLOBAL, LOCAL) for kind in kinds):
        raise ValueError(f"layer_types must be {GLOBAL} or {LOCAL} for each of {layers} layers, got {kinds!r:.100}")
    return tuple(layer for layer, kind in enumerate(kinds) if kind == LOCAL)


def kinds_of(config: BertConfig | LlamaConfig) -> list[str]:
    """`layer_types` of a model; `local_layers` reads them back."""
    return [LOCAL if layer in config.local_layers else GLOBAL for layer in range(config.num_layers)]
