"""The settings of rotary positions in a config.json of Transformers."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jaxnlp.convert.folders import PretrainedError
from jaxnlp.models.llama import LlamaConfig
from jaxnlp.text.foreign_settings import ForeignSettings

SETTINGS = ("rope_parameters", "rope_scaling", "rope_theta")
"""The object of Transformers 5, and the object and the number of earlier versions."""
_FACTORS = {
    "factor": "rotary_factor",
    "low_freq_factor": "rotary_fewest_turns",
    "high_freq_factor": "rotary_most_turns",
    "original_max_position_embeddings": "rotary_original_length",
}
_NEEDED = {"default": (), "linear": ("factor",), "llama3": tuple(_FACTORS)}
"""Settings of each type of scaling."""
RULES = ForeignSettings(
    applied=("rope_theta", *_FACTORS),
    supported={**dict.fromkeys(("rope_type", "type"), tuple(_NEEDED)), "partial_rotary_factor": (1.0, 1)},
    ignored={},
)
"""Rules for the object."""


def rotary_fields(file: Path, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of `LlamaConfig` for rotary positions.

    Args:
      file: the config.json, for messages.
      settings: its content.

    Raises: PretrainedError for other types of scaling, and for settings that are missing or not numbers.
    """
    held: dict[str, Any] = {}
    for name in ("rope_scaling", "rope_parameters"):
        given = settings.get(name)
        if not isinstance(given, dict | None):
            raise PretrainedError(f"{file}: {name} must be an object, got {given!r}")
        held |= given or {}
    if "rope_theta" not in held:
        held["rope_theta"] = settings.get("rope_theta", LlamaConfig.rotary_base)
    strange = RULES.problems(held)
    kind = held.get("rope_type", held.get("type", "default"))
    needed = ("rope_theta", *_NEEDED.get(str(kind), ()))
    strange += [
        f"{name} {held.get(name)!r}, expected a number" for name in needed if type(held.get(name)) not in (int, float)
    ]
    if strange:
        raise PretrainedError(f"{file}: rotary positions that are not supported: {'; '.join(strange)}")
    factors = {_FACTORS[name]: held[name] for name in needed[1:]}
    return {"rotary_base": held["rope_theta"], **factors}


def rotary_settings(config: LlamaConfig) -> dict[str, Any]:
    """The settings of config.json for these rotary positions; `rotary_fields` reads them back."""
    kind = "default" if config.rotary_factor == 1.0 else "llama3" if config.rotary_original_length else "linear"
    factors = {name: getattr(config, _FACTORS[name]) for name in _NEEDED[kind]}
    return {"rope_parameters": {"rope_type": kind, "rope_theta": config.rotary_base, **factors}}
