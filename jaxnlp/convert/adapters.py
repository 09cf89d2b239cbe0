"""LoRA's factors of weights, as in PEFT: added to a model's tensors, or found from a model's change.

A module's weight W [outputs, inputs] becomes W + s B A, with A [r, inputs] and B [outputs, r]; a table of embeddings E
[V, D] becomes E + s (B A)^T, with A [r, V] and B [D, r]. Rows of new tokens replace those of the embeddings, and of a
tied output layer. Other tensors, such as a new head's, are whole.
"""

import functools
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from jaxnlp.convert import decoders, encoder_decoders, encoders
from jaxnlp.convert.tensors import WeightsError
from jaxnlp.text.foreign_settings import ForeignSettings

ADAPTER_CONFIG, ADAPTER = "adapter_config.json", "adapter_model.safetensors"
_PREFIX, _A, _B = "base_model.model.", ".lora_A.weight", ".lora_B.weight"
_EMBEDDED_A, _EMBEDDED_B = ".lora_embedding_A", ".lora_embedding_B"
_ROWS = ".token_adapter.trainable_tokens_delta"
_WRAPPERS = (".token_adapter", ".base_layer", ".modules_to_save")
"""Parts of the names of whole modules in PEFT's files, around the model's names."""
_OUTPUTS = ("lm_head", "score")
"""Modules of decoders whose weights are always [outputs, inputs]."""
_OF_TEXTS = "SEQ_CLS"
_CLASSES = {
    _OF_TEXTS: "ForSequenceClassification",
    "TOKEN_CLS": "ForTokenClassification",
    "QUESTION_ANS": "ForQuestionAnswering",
}
"""The ends of the names of Transformers' encoder classes, by PEFT's tasks."""
_HEADS = dict.fromkeys(("SEQ_CLS", "TOKEN_CLS"), ("classifier", "score")) | {"QUESTION_ANS": ("qa_outputs",)}
"""Modules that PEFT always stores whole, by task."""
_VIT = (
    ("encoder.layer.", "layers."),
    ("attention.attention.query", "attention.q_proj"),
    ("attention.attention.key", "attention.k_proj"),
    ("attention.attention.value", "attention.v_proj"),
    ("attention.output.dense", "attention.o_proj"),
    ("intermediate.dense", "mlp.fc1"),
    ("output.dense", "mlp.fc2"),
)
_NAMES = {"vit": _VIT, "deit": _VIT}
"""Parts of the names of modules in files and in memory, where Transformers has two."""
_LARGEST_REST = 0.01
"""The largest relative norm of a change's rest, after a product of factors."""

_UNSUPPORTED = (
    *("layer_replication", "megatron_config", "alora_invocation_tokens", "arrow_config", "kasa_config"),
    *("use_bdlora", "monteclora_config", "velora_config", "target_parameters"),
)

SETTINGS = ForeignSettings(
    applied=(
        *("base_model_name_or_path", "r", "lora_alpha", "rank_pattern", "alpha_pattern", "use_rslora"),
        *("target_modules", "modules_to_save", "bias", "trainable_token_indices"),
    ),
    supported={
        "peft_type": ("LORA",),
        **dict.fromkeys(("use_dora", "use_qalora", "lora_bias"), (False,)),
        **dict.fromkeys(_UNSUPPORTED, (None,)),
        # Others, such as PiSSA, also change the weights of the base whenever PEFT loads the adapter.
        "init_lora_weights": (True, False, None, "gaussian", "eva", "orthogonal", "mica"),
    },
    ignored={
        "training and the first factors": (
            *("lora_dropout", "inference_mode", "loftq_config", "corda_config", "eva_config"),
            *("lora_ga_config", "ensure_weight_tying", "runtime_config"),
        ),
        "the tensors say which modules there are": ("exclude_modules", "layers_to_transform", "layers_pattern"),
        "the model says which matrices are [inputs, outputs]; PEFT writes false if not all are": ("fan_in_fan_out",),
        "names for PEFT": (
            *("task_type", "auto_mapping", "revision", "peft_version", "megatron_core", "qalora_group_size"),
        ),
    },
)
"""Rules for adapter_config.json."""


def add_factors(
    tensors: Mapping[str, np.ndarray], adapter: Mapping[str, np.ndarray], settings: Mapping[str, Any], model_type: str
) -> dict[str, np.ndarray]:
    """The tensors of a model with an adapter added.

    Args:
      tensors: of the model, [...] each, by name.
      adapter: of PEFT's file, [...] each, by name.
      settings: of adapter_config.json, checked by `SETTINGS`.
      model_type: of the model.

    Raises: WeightsError for tensors that do not fit each other.
    """
    found = _with_output_layer(tensors, model_type)
    own = {name: _renamed(_without_prefix(name), model_type, to_files=True) for name in adapter}
    rows = {name: module.removesuffix(_ROWS) for name, module in own.items() if module.endswith(_ROWS)}
    # With resized embeddings a trained module is there three times: as it was, in its wrapper, and under its own name.
    for name, module in sorted(own.items(), key=lambda item: ".modules_to_save." in item[1]):
        if "lora_" not in module and ".original_module." not in module and name not in rows:
            for wrapper in _WRAPPERS:
                module = module.replace(f"{wrapper}.", ".")
            found[_name_in(tensors, module) or module] = np.asarray(adapter[name], np.float32)
    for name, module in own.items():
        a, b = (_A, _B) if module.endswith((_A, _B)) else (_EMBEDDED_A, _EMBEDDED_B)
        if "lora_" not in module or (module.endswith(b) and name.removesuffix(b) + a in adapter):
            continue
        if not module.endswith(a):
            raise WeightsError(f"{name} is not supported, expected factors of a dense layer or of embeddings")
        module = module.removesuffix(a)
        held = _name_in(found, f"{module}.weight")
        if held is None:
            raise WeightsError(f"{name}: the model has no tensor {module}.weight")
        try:
            second = adapter[name.removesuffix(a) + b]
        except KeyError as error:
            raise WeightsError(f"{name}: the factor {error} is missing") from error
        first, second = (np.asarray(factor, np.float32) for factor in (adapter[name], second))
        if first.ndim != 2 or second.ndim != 2:
            raise WeightsError(
                f"{name} is not supported, expected factors of a dense layer or of embeddings, 2 axes each"
            )
        change = _scale(settings, _without_prefix(name).removesuffix(a), len(first)) * (second @ first)
        conv1d = _inputs_first(model_type) and module not in _OUTPUTS
        change = change.T if a == _EMBEDDED_A or conv1d else change
        if change.shape != found[held].shape:
            raise WeightsError(f"{name} makes {change.shape}, but {held} is {found[held].shape}")
        found[held] = np.asarray(found[held], np.float32) + change
    _refuse_one_table(found, tensors, model_type, {f"{module}.weight" for module in rows.values()})
    for name, module in rows.items():
        own_rows = np.asarray(adapter[name], np.float32)
        indices = _indices(settings, module, name, len(own_rows))
        for held in _with_tied(found, tensors, module, set(rows.values()), model_type):
            found[held] = _with_rows(found[held], indices, own_rows)
    return found


def _indices(settings: Mapping[str, Any], module: str, name: str, count: int) -> np.ndarray:
    """The indices of the rows of a module's new tokens. Raises: WeightsError for another number of rows."""
    given = settings.get("trainable_token_indices")
    if isinstance(given, dict):
        of = {key: own for key, own in given.items() if f".{module}".endswith(f".{key}")} or given  # or of a tied one
        given = next(iter(of.values()), None)
    indices = given if isinstance(given, list) else []
    if len(indices) != count or not all(type(index) is int and index >= 0 for index in indices):
        raise WeightsError(f"{name} has {count} rows, but trainable_token_indices is {given!r:.80}")
    return np.array(indices, np.int64)


def _with_tied(
    found: Mapping[str, np.ndarray], before: Mapping[str, np.ndarray], module: str, modules: set[str], model_type: str
) -> list[str]:
    """The names of a module's tensor, and of a tied output layer without rows of its own.

    Args:
      found, before: tensors [...] of the model with the adapter, and without it, by name.
      modules: those that have rows.
    """
    output, table = _output_and_table(before, model_type)
    own = _name_in(found, f"{module}.weight")
    if own is None:
        raise WeightsError(f"{module}{_ROWS}: the model has no tensor {module}.weight")
    head = f"{output}.weight"
    tied = own == table and output not in modules and head in found and np.array_equal(found[head], found[own])
    return [own, head] if tied else [own]


def _with_rows(table: np.ndarray, indices: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """A table [V, D] with these rows [N, D] at the indices [N], longer if they follow its own. Raises: WeightsError."""
    if rows.shape[1:] != table.shape[1:]:
        raise WeightsError(f"rows of new tokens are {rows.shape}, but the table is {table.shape}")
    longer = np.zeros((max(len(table), int(indices.max(initial=-1)) + 1), *table.shape[1:]), np.float32)
    longer[: len(table)] = table
    longer[indices] = rows
    return longer


def _without_prefix(name: str) -> str:
    """The name without PEFT's prefix. Raises: WeightsError."""
    if not name.startswith(_PREFIX):
        raise WeightsError(f"unknown tensor {name}, expected a name that begins with {_PREFIX}")
    return name.removeprefix(_PREFIX)


def _output_and_table(tensors: Mapping[str, np.ndarray], model_type: str) -> tuple[str, str | None]:
    """The output layer of a decoder or of masked tokens, without `.weight`, and the tensor of the embeddings."""
    if model_type in (one := decoders.families()):
        names = one[model_type].names
        return names.head, _name_in(tensors, f"{names.tokens}.weight")
    if model_type in (known := encoders.families()):
        family = known[model_type].names
        output = family.output if family.token_bias in tensors else ""
        return output, _name_in(tensors, f"{family.tokens}.weight")
    many = encoder_decoders.families()
    return "", _name_in(tensors, f"{many[model_type].tokens}.weight") if model_type in many else None


def num_embeddings(tensors: Mapping[str, np.ndarray], model_type: str) -> int | None:
    """V, from the embeddings among tensors [...] by name; None without embeddings."""
    _, table = _output_and_table(tensors, model_type)
    return None if table is None else len(tensors[table])


def _with_output_layer(tensors: Mapping[str, np.ndarray], model_type: str) -> dict[str, np.ndarray]:
    """The tensors of a model with an untied output layer: PEFT changes it without the embeddings."""
    output, table = _output_and_table(tensors, model_type)
    return dict(tensors) if table is None or not output else {f"{output}.weight": tensors[table], **tensors}


def _refuse_one_table(
    found: Mapping[str, np.ndarray], before: Mapping[str, np.ndarray], model_type: str, allowed: set[str]
) -> None:
    """Raises: WeightsError for changed embeddings of an encoder-decoder, which has one table, where PEFT has three.

    Args:
      found, before: tensors [...] of the model with the adapter, and without it, by name.
      allowed: tables that change only in rows of new tokens, which PEFT changes in all three.
    """
    if model_type not in (known := encoder_decoders.families()):
        return
    family = known[model_type]
    for table in (family.tokens, *family.copies):
        own = _name_in(before, f"{table}.weight")
        if own is not None and own not in allowed and not np.array_equal(found[own], before[own]):
            raise WeightsError(f"{own}: changed embeddings of a {family.title} are not supported")


def class_of_task(model_type: str, task_type: str) -> str | None:
    """The class of Transformers with the head of PEFT's task, such as GPT2ForSequenceClassification; None = no head, or
    an unsupported one."""
    if model_type in (known := encoders.families()) and task_type in _CLASSES:
        return f"{known[model_type].prefix}{_CLASSES[task_type]}"
    one = decoders.families()
    return one[model_type].classifier if model_type in one and task_type == _OF_TEXTS else None


def without_other_heads(tensors: Mapping[str, np.ndarray], model_type: str, kind: str) -> dict[str, np.ndarray]:
    """The tensors of a model that a class of encoders reads, without other heads, as in Transformers.

    Args:
      tensors: [...] each, by name.
      model_type: of an encoder; `read_decoder` leaves out the output layer of a decoder.
      kind: the class, see `class_of_task`.
    """
    family = encoders.families()[model_type]
    names = family.names
    kept = (f"{family.classifier_pooler}.", *([f"{names.pooler_norm}."] if names.pooler_norm else ()))
    left = {name: x for name, x in tensors.items() if not name.startswith(family.outside) or name.startswith(kept)}
    if kind == class_of_task(model_type, _OF_TEXTS) or not family.dense_heads:
        return left
    return {name: x for name, x in left.items() if f".{names.pooler}." not in f".{name}"}


def _renamed(name: str, model_type: str, *, to_files: bool) -> str:
    """A module's name in files for its name in memory, which PEFT uses, or the reverse."""
    for in_files, in_memory in _NAMES.get(model_type, ()):
        name = name.replace(in_memory, in_files) if to_files else name.replace(in_files, in_memory)
    return name


def _scale(settings: Mapping[str, Any], module: str, rank: int) -> float:
    """The factor of a module's product; the first pattern that ends the module's name decides its alpha."""
    alpha = settings.get("lora_alpha", 8)
    for pattern, own in (settings.get("alpha_pattern") or {}).items():
        if re.match(rf"(.*\.)?({pattern})$", module):
            alpha = own
            break
    return float(alpha / (rank**0.5 if settings.get("use_rslora") else rank))


def _name_in(tensors: Mapping[str, Any], name: str) -> str | None:
    """The tensor of this name, with or without a model's prefix, such as `bert.`."""
    if name in tensors:
        return name
    same = [held for held in tensors if f".{held}".endswith(f".{name}") or name.endswith(f".{held}")]
    return same[0] if len(same) == 1 else None


class Adapter(NamedTuple):
    """The files of an adapter: tensors [...] by name, and settings."""

    tensors: dict[str, np.ndarray]
    settings: dict[str, Any]


def factors_of_change(
    base: Mapping[str, np.ndarray],
    tensors: Mapping[str, np.ndarray],
    *,
    rank: int,
    model_type: str,
    task_type: str | None,
) -> Adapter:
    """The adapter that turns one model into another.

    Weights whose change is a product of factors have factors. The embeddings, and a tied output layer, have changed and
    new rows. Other changed modules, such as new heads, are whole.

    Args:
      base: tensors [...] of the initial model, by name.
      tensors: after training.
      rank: of the factors; up to three times as much for one weight of queries, keys and values.
      model_type, task_type: in Transformers, and in PEFT; None = PEFT has no name for it.

    Raises: WeightsError for what PEFT cannot store: a changed tensor in no module, and rows of new tokens of an output
    layer in a whole module, such as a head of masked tokens.
    """
    held = {name: _name_in(base, name) for name in tensors}
    known = {prefix for name, own in held.items() if own is not None for prefix in _prefixes(name)}
    factors: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    whole: set[str] = set()
    rows: dict[str, np.ndarray] = {}
    _, table = _output_and_table(tensors, model_type)
    copies = [name for name, x in tensors.items() if table not in (None, name) and np.array_equal(x, tensors[table])]
    for name, tensor in tensors.items():
        module, _, kind = name.rpartition(".")
        head, own = name.partition(".")[0], held[name]
        if name in copies:
            continue  # PEFT changes it with the table
        if name == table and own is not None:
            old = np.asarray(base[own], np.float32)
            changed = np.any(tensor[: len(old)] != old, axis=1)
            indices = [*np.flatnonzero(changed), *range(len(old), len(tensor))]
            rows |= {module: np.array(indices, np.int64)} if indices else {}
        elif head in _HEADS.get(task_type or "", ()):
            whole.add(head)
        elif own is None:
            whole.add(next((prefix for prefix in _prefixes(name) if prefix not in known), module))
        elif not np.array_equal(before := np.asarray(base[own], np.float32), tensor):
            if not module:
                raise WeightsError(f"{name} changes, but is in no module, and PEFT stores only modules")
            two = None
            if kind == "weight" and tensor.ndim == 2 and before.shape == tensor.shape:
                change = tensor - before
                two = _factored(change.T if _inputs_first(model_type) else change, rank)
            if two is None:
                whole.add(module)
            else:
                factors[module] = two
    inside = sorted({module for name in copies for module in _prefixes(name)} & whole)
    if rows and inside:
        raise WeightsError(
            f"{inside[0]} changes, and has the embeddings as its output layer; PEFT cannot store it beside new tokens"
        )
    low = {module: two for module, two in factors.items() if module not in whole}
    low = {_renamed(module, model_type, to_files=False): two for module, two in low.items()}
    stored = {f"{_PREFIX}{module}{_A}": a for module, (a, _) in low.items()}
    stored |= {f"{_PREFIX}{module}{_B}": b for module, (_, b) in low.items()}
    stored |= {
        _PREFIX + name: np.asarray(x, np.float32)
        for name, x in tensors.items()
        if not whole.isdisjoint(_prefixes(name))
    }
    stored |= {f"{_PREFIX}{module}{_ROWS}": tensors[f"{module}.weight"][indices] for module, indices in rows.items()}
    patterns = {module: len(a) for module, (a, _) in low.items() if len(a) != rank}
    settings = {
        **{"peft_type": "LORA", "task_type": task_type, "inference_mode": True, "bias": "none"},
        **{"r": rank, "lora_alpha": rank, "rank_pattern": patterns, "alpha_pattern": patterns},
        **{"target_modules": sorted(low), "modules_to_save": sorted(whole) or None, "lora_dropout": 0.0},
        "trainable_token_indices": {module: indices.tolist() for module, indices in rows.items()} or None,
        **{"fan_in_fan_out": _inputs_first(model_type), "use_rslora": False, "use_dora": False},
    }
    return Adapter(stored, settings)


@functools.cache
def _inputs_first(model_type: str) -> bool:
    """Whether the weights of the family are [inputs, outputs]."""
    known = decoders.families()
    return model_type in known and not known[model_type].transposed


def _prefixes(name: str) -> list[str]:
    """The modules around a tensor, the outermost first: a and a.b of a.b.weight."""
    parts = name.split(".")
    return [".".join(parts[:length]) for length in range(1, len(parts))]


def _factored(change: np.ndarray, rank: int) -> tuple[np.ndarray, np.ndarray] | None:
    """A [r, inputs] and B [outputs, r] of a change [outputs, inputs] = B A, with this rank or three times as much; None
    = a higher rank.

    Products with random vectors find the change's range. Source: Halko et al. 2011, algorithm 4.1.
    """
    most = min(3 * rank + 8, *change.shape)
    basis, _ = np.linalg.qr(np.float64(change) @ np.random.default_rng(0).normal(size=(change.shape[1], most)))
    left, values, right = np.linalg.svd(basis.T @ change, full_matrices=False)
    whole = np.sum(np.square(change, dtype=np.float64))
    for each in (rank, 3 * rank):
        roots = np.sqrt(values[:each])
        if whole - np.sum(values[:each] ** 2) <= _LARGEST_REST**2 * whole:
            missing = [(0, each - len(roots)), (0, 0)]
            a, b = roots[:, None] * right[:each], roots[:, None] * (basis @ left[:, :each]).T
            return np.pad(a, missing).astype(np.float32), np.pad(b, missing).T.astype(np.float32)
    return None
