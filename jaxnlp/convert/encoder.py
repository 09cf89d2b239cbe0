"""Converts an encoder's weights between the names of Hugging Face Transformers and the parameters of
`jaxnlp.models.bert`."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from jaxnlp.convert.encoders import EncoderFamily, EncoderNames, families
from jaxnlp.models.bert import BertConfig
from jaxnlp.typing import Params


def tensor_prefixes(family: EncoderFamily) -> tuple[str, ...]:
    """Possible prefixes of the encoder's names. A model without heads and sentence-transformers use no prefix, models
    with heads use the family's, and saved whole modules of sentence-transformers or of a trainer use the others."""
    return ("", f"{family.base}.", "model.", "auto_model.", "0.auto_model.")


class WeightsError(ValueError):
    """Tensors do not fit the model; the message lists them."""


class EncoderWeights(NamedTuple):
    """Parameters of `Bert`, and parameters of `PretrainingHeads`: of both heads, of one head, or None."""

    params: Params
    heads: Params | None


def from_huggingface(tensors: Mapping[str, np.ndarray], config: BertConfig, vocabulary_size: int) -> EncoderWeights:
    """Parameters that compute the same function; floats of any precision become float32.

    Args:
      tensors: tensors by name, with the names of the family in Transformers.
      config: the model's shape, and its model type.
      vocabulary_size: V.

    Returns:
      Copies.

    Raises:
      WeightsError: listing tensors that are missing, unknown, not floats, not finite, or have other shapes.
    """
    family = families()[config.model_type]
    names, mark = family.names, f"{family.names.tokens}.weight"
    prefix = next((prefix for prefix in tensor_prefixes(family) if prefix + mark in tensors), None)
    if prefix is None:
        raise WeightsError(
            f"this is not a {family.title} checkpoint: none of its {len(tensors)} tensors is called {mark}"
        )
    by_name: dict[str, tuple[str, np.ndarray]] = {}
    for name, tensor in tensors.items():
        short = _modern(name.removeprefix(prefix))
        if short.startswith(f"{family.classifier_pooler}."):
            short = names.pooler + short.removeprefix(family.classifier_pooler)
        if short == "embeddings.position_ids":
            continue
        if short in by_name:
            raise WeightsError(f"{by_name[short][0]} and {name} are the same tensor of {family.title}; remove one")
        by_name[short] = (name, tensor)
    entries = list(_encoder(config, names, vocabulary_size))
    for head in _heads(config, names, vocabulary_size):
        if any(name in by_name for entry in head for name in entry.names):
            entries += head
    _check(by_name, entries, family)

    trees: dict[str, Any] = {"encoder": {}, "heads": {}}
    for entry in entries:
        arrays = [by_name[name][1] for name in entry.names]
        _put(trees[entry.tree], entry.path, entry.join([np.asarray(array, np.float32) for array in arrays]))
    trees = _stacked(trees)
    return EncoderWeights(trees["encoder"], trees["heads"] or None)


def to_huggingface(
    params: Params, config: BertConfig, vocabulary_size: int, heads: Params | None = None
) -> dict[str, np.ndarray]:
    """Tensors by Transformers' names: those of a model without heads, such as BertModel, or with pretraining heads.

    Args:
      params: parameters of `Bert`.
      config: the model's shape, and its model type; its family in Transformers must support its other fields.
      vocabulary_size: V.
      heads: parameters of `PretrainingHeads`, or of one of the two heads.

    Returns:
      Copies, float32. `from_huggingface` converts them to the same bits.

    Raises:
      WeightsError: for variants that Transformers does not support, and parameters that do not fit the config.
    """
    family = checked_family(config)
    names, trees = family.names, {"encoder": params, "heads": heads}
    tensors: dict[str, np.ndarray] = {}
    prefix = "" if heads is None else f"{family.base}."
    entries = list(_encoder(config, names, vocabulary_size))
    if heads is not None:
        held = [
            head for head in _heads(config, names, vocabulary_size) if any(entry.path[0] in heads for entry in head)
        ]
        unknown = heads.keys() - {entry.path[0] for head in held for entry in head}
        if unknown:
            raise WeightsError(f"Transformers' {family.title} has no head {', '.join(sorted(unknown))}")
        entries += [entry for head in held for entry in head]
    for entry in entries:
        try:
            array = np.asarray(_get(trees[entry.tree], entry.path), np.float32)
            parts = entry.split(array)
        except (KeyError, TypeError, IndexError, ValueError) as error:
            raise WeightsError(
                f"no parameter {'/'.join(map(str, entry.path))} that fits the config: {error}"
            ) from error
        for name, shape, part in zip(entry.names, entry.shapes, parts, strict=True):
            if part.shape != shape:
                raise WeightsError(f"{'/'.join(map(str, entry.path))} gives {name} {part.shape}, expected {shape}")
            whole = name if name.startswith(family.outside) else prefix + name
            tensors[whole] = np.array(part, order="C")
    if names.token_bias in tensors:
        for copy, original in _copies(names).items():
            tensors[copy] = tensors[original if original in tensors else prefix + original].copy()
    return tensors


def checked_family(config: BertConfig) -> EncoderFamily:
    """The family as which an encoder is exported. Raises: WeightsError unless it supports the encoder's variants."""
    known = families()
    if config.model_type not in known:
        raise WeightsError(f"model.encoder.model_type must be one of {', '.join(known)}, got {config.model_type!r}")
    family = known[config.model_type]
    strange = [
        f"{name} = {getattr(config, name)}" for name, value in family.fixed.items() if getattr(config, name) != value
    ]
    strange += [
        f"{name} = None" for name in family.fields.values() if name == "padding_id" and config.padding_id is None
    ]
    if strange:
        raise WeightsError(f"Transformers' {family.title} does not support {', '.join(strange)}")
    return family


class _Entry(NamedTuple):
    """One parameter, and the tensors that make it up.

    Attributes:
      tree: "encoder" or "heads".
      path: path of the parameter; a number at its end is the index in a stack.
      names, shapes: names and shapes of the tensors.
      join: converts tensors to the parameter.
      split: converts the parameter to tensors.
    """

    tree: str
    path: tuple[str | int, ...]
    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    join: Callable[[list[np.ndarray]], np.ndarray]
    split: Callable[[np.ndarray], list[np.ndarray]]


def _copies(names: EncoderNames) -> dict[str, str]:
    """Tensors that some files store twice: the output layer of masked tokens shares the embedding."""
    copies = {f"{names.output}.weight": f"{names.tokens}.weight", f"{names.output}.bias": names.token_bias}
    return {copy: original for copy, original in copies.items() if copy != original}


def _plain(tree: str, path: tuple[str | int, ...], name: str, *shape: int) -> _Entry:
    return _Entry(tree, path, (name,), (shape,), lambda arrays: arrays[0].copy(), lambda array: [array])


def _dense(
    tree: str,
    path: tuple[str, ...],
    names: tuple[str, ...],
    features: int,
    inputs: int,
    *stack: int,
    heads: int | None = None,
) -> Iterator[_Entry]:
    """A dense layer that consists of one or more layers of PyTorch, with transposed matrices.

    With `heads`, our layer combines n layers, [D, n, H, K]; features = H K.
    """
    axes = (features,) if heads is None else (len(names), heads, features // heads)

    def join_kernels(arrays: list[np.ndarray]) -> np.ndarray:
        return np.concatenate([array.T for array in arrays], axis=1).reshape(inputs, *axes)

    def split_kernel(array: np.ndarray) -> list[np.ndarray]:
        _expect(array, (inputs, *axes))
        return [part.T for part in np.split(array.reshape(inputs, -1), len(names), axis=1)]

    def join_biases(arrays: list[np.ndarray]) -> np.ndarray:
        return np.concatenate(arrays).reshape(axes)

    def split_bias(array: np.ndarray) -> list[np.ndarray]:
        _expect(array, axes)
        return np.split(array.reshape(-1), len(names))

    weights, biases = (tuple(f"{name}.{kind}" for name in names) for kind in ("weight", "bias"))
    shapes = ((features, inputs),) * len(names)
    yield _Entry(tree, (*path, "kernel", *stack), weights, shapes, join_kernels, split_kernel)
    yield _Entry(tree, (*path, "bias", *stack), biases, ((features,),) * len(names), join_biases, split_bias)


def _expect(array: np.ndarray, shape: tuple[int, ...]) -> None:
    if array.shape != shape:
        raise ValueError(f"its shape is {array.shape}, expected {shape}")


def _norm(tree: str, path: tuple[str, ...], name: str, width: int, *stack: int) -> Iterator[_Entry]:
    yield _plain(tree, (*path, "scale", *stack), f"{name}.weight", width)
    yield _plain(tree, (*path, "bias", *stack), f"{name}.bias", width)


def _encoder(config: BertConfig, names: EncoderNames, vocabulary_size: int) -> Iterator[_Entry]:
    tree, width, hidden = "encoder", config.width, config.hidden_width
    yield _plain(tree, ("tokens", "embedding"), f"{names.tokens}.weight", vocabulary_size, width)
    yield _plain(tree, ("positions",), f"{names.positions}.weight", config.position_rows, width)
    if names.segments is not None:
        yield _plain(tree, ("segments",), f"{names.segments}.weight", config.num_segments, width)
    yield from _norm(tree, ("embedding_norm",), names.embedding_norm, width)
    for layer in range(config.num_layers):
        here, block = names.block.format(layer), "blocks"
        attention = tuple(here + part for part in names.qkv)
        yield from _dense(tree, (block, "attention", "qkv"), attention, width, width, layer, heads=config.num_heads)
        yield from _dense(tree, (block, "attention", "out"), (here + names.attention,), width, width, layer)
        yield from _norm(tree, (block, "attention_norm"), here + names.attention_norm, width, layer)
        yield from _dense(tree, (block, "feed_forward", "up"), (here + names.up,), hidden, width, layer)
        yield from _dense(tree, (block, "feed_forward", "down"), (here + names.down,), width, hidden, layer)
        yield from _norm(tree, (block, "feed_forward_norm"), here + names.feed_forward_norm, width, layer)
    if config.use_pooler:
        yield from _dense(tree, ("pooler",), (names.pooler,), width, width)


def _heads(config: BertConfig, names: EncoderNames, vocabulary_size: int) -> Iterator[list[_Entry]]:
    """The pretraining heads: masked tokens, and next sentences. A file may have only one of them."""
    tree, width = "heads", config.width
    yield [
        *_dense(tree, ("transform",), (names.transform,), width, width),
        *_norm(tree, ("norm",), names.norm, width),
        _plain(tree, ("token_bias",), names.token_bias, vocabulary_size),
    ]
    if names.follows is not None:
        yield list(_dense(tree, ("follows",), (names.follows,), 2, width))


def _modern(name: str) -> str:
    """Files from the original TensorFlow checkpoints call the parameters of a normalisation gamma and beta."""
    return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")


def _check(by_name: dict[str, tuple[str, np.ndarray]], entries: list[_Entry], family: EncoderFamily) -> None:
    """Raises WeightsError unless `by_name` contains exactly the tensors of the entries."""
    expected = {name: shape for entry in entries for name, shape in zip(entry.names, entry.shapes, strict=True)}
    wrong = [f"missing: {name} {shape}" for name, shape in expected.items() if name not in by_name]
    own = {theirs.partition(".")[0] for name, (theirs, _) in by_name.items() if name in expected}
    unknown, copies = set[str](), _copies(family.names)
    for name, (theirs, tensor) in by_name.items():
        if name in copies and copies[name] in by_name:
            if not np.array_equal(tensor, by_name[copies[name]][1]):
                wrong.append(f"{theirs} is not tied: it differs from {copies[name]}")
        elif name not in expected:
            wrong.append(f"unknown: {theirs} {tensor.shape}")
            first = theirs.partition(".")[0]
            unknown.add(
                theirs if first in own or first == theirs else f"{first}."
            )  # never a prefix that would also leave out tensors of the encoder
        elif tensor.shape != expected[name]:
            wrong.append(f"{theirs} {tensor.shape}, expected {expected[name]}")
        elif tensor.dtype.kind != "f" and tensor.dtype.name != "bfloat16":
            wrong.append(f"{theirs} holds {tensor.dtype}, expected floats")
        elif not np.isfinite(tensor).all():
            wrong.append(f"{theirs} holds infinity or NaN")
    if wrong:
        more = f"\n  and {len(wrong) - 20} more" if len(wrong) > 20 else ""
        lines = "".join(f"\n  {line}" for line in wrong[:20])
        begin = sorted(unknown)
        hint = (
            f"\nTo ignore unknown tensors, give the first parts of their names: --ignore {' '.join(begin)} (commands), "
            f"--init-ignore {' '.join(begin)} (training) or ignore={tuple(begin)}"
            if begin
            else ""
        )
        raise WeightsError(f"tensors that do not fit this {family.title}: {len(wrong)}{lines}{more}{hint}")


def _put(tree: dict[str, Any], path: tuple[str | int, ...], array: np.ndarray) -> None:
    """Collects arrays whose path ends with a number in a list, in the order of the numbers."""
    names = [name for name in path if isinstance(name, str)]
    for name in names[:-1]:
        tree = tree.setdefault(name, {})
    if len(names) == len(path):
        tree[names[-1]] = array
    else:
        tree.setdefault(names[-1], []).append(array)


def _stacked(tree: Any) -> Any:
    """Stacks lists of arrays into arrays."""
    if isinstance(tree, dict):
        return {name: _stacked(value) for name, value in tree.items()}
    return np.stack(tree) if isinstance(tree, list) else tree


def _get(tree: Any, path: tuple[str | int, ...]) -> Any:
    for name in path:
        tree = tree[name]
    return tree
