"""The settings of local and global layers in a config.json of Transformers, each kind with its rotary positions."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jaxnlp.convert.folders import PretrainedError
from jaxnlp.models.bert import BertConfig
from jaxnlp.text.foreign_settings import ForeignSettings

SETTINGS = ("layer_types", "global_attn_every_n_layers", "rope_parameters", "global_rope_theta", "local_rope_theta")
"""The first and the third of Transformers 5, and the others of earlier versions."""
_GLOBAL, _LOCAL = "full_attention", "sliding_attention"
_FIELDS = {_GLOBAL: "rotary_base", _LOCAL: "local_rotary_base"}
_EARLIER = {_GLOBAL: ("global_rope_theta", 160_000.0), _LOCAL: ("local_rope_theta", 10_000.0)}
"""The earlier setting of each kind's base, and its default."""
_ROTARY = ForeignSettings(
    applied=("rope_theta",), supported={"rope_type": ("default",), "partial_rotary_factor": (1.0, 1)}, ignored={}
)
"""An object of `rope_parameters`."""


def layer_kind_fields(file: Path, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of `BertConfig` that say which layers are local, and how positions rotate queries and keys.

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
        kinds = [_LOCAL if layer % every else _GLOBAL for layer in range(layers)]
    if not isinstance(kinds, list) or len(kinds) != layers or any(kind not in tuple(_FIELDS) for kind in kinds):
        strange.append(f"layer_types {kinds!r}, expected {_GLOBAL} or {_LOCAL} for each of {layers} layers")
    rotary, bases = settings.get("rope_parameters") or {}, {}
    for kind, (earlier, default) in _EARLIER.items():
        held = (rotary.get(kind) if isinstance(rotary, dict) else rotary) or {}
        if not isinstance(held, dict):
            strange.append(f"rope_parameters {rotary!r}, expected an object for each of {_GLOBAL} and {_LOCAL}")
            continue
        strange += [f"rope_parameters of {kind}: {problem}" for problem in _ROTARY.problems(held)]
        bases[kind] = held.get("rope_theta", settings.get(earlier, default))
        if type(bases[kind]) not in (int, float):
            strange.append(f"rope_theta of {kind} {bases[kind]!r}, expected a number")
    if isinstance(rotary, dict) and (others := sorted(rotary.keys() - _FIELDS.keys())):
        strange.append(f"rope_parameters of {', '.join(others)}")
    if strange:
        raise PretrainedError(f"{file}: layers that are not supported: {'; '.join(strange)}")
    local = tuple(layer for layer, kind in enumerate(kinds) if kind == _LOCAL)
    return {"local_layers": local} | {name: bases[kind] for kind, name in _FIELDS.items() if local or kind == _GLOBAL}


def layer_kind_settings(config: BertConfig) -> dict[str, Any]:
    """The settings of config.json for these layers; `layer_kind_fields` reads them back."""
    rotary = {kind: {"rope_type": "default", "rope_theta": getattr(config, name)} for kind, name in _FIELDS.items()}
    kinds = [_LOCAL if layer in config.local_layers else _GLOBAL for layer in range(config.num_layers)]
    return {"layer_types": kinds, "rope_parameters": rotary}
