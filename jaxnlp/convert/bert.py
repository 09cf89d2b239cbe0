"""Converts BERT's weights between the names of Hugging Face Transformers and the parameters of `jaxnlp.models.bert`."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from jaxnlp.models.bert import BertConfig
from jaxnlp.typing import Params

TENSOR_PREFIXES = ("", "bert.", "model.", "auto_model.", "0.auto_model.")
"""Possible prefixes of the encoder's names. BertModel and sentence-transformers use no prefix, models with heads use
`bert.`, and saved whole modules of sentence-transformers or of a trainer use the others."""
_MARK = "embeddings.word_embeddings.weight"


class WeightsError(ValueError):
    """Tensors do not fit the model; the message lists them."""


class BertWeights(NamedTuple):
    """Parameters of `Bert`, and parameters of `PretrainingHeads`: of both heads, of one head, or None."""

    params: Params
    heads: Params | None


def from_huggingface(tensors: Mapping[str, np.ndarray], config: BertConfig, vocabulary_size: int) -> BertWeights:
    """Parameters that compute the same function; floats of any precision become float32.

    Args:
      tensors: tensors by name; names of the pretraining heads start with `cls.`.
      config: the model's shape.
      vocabulary_size: V.

    Returns:
      Copies.

    Raises:
      WeightsError: listing tensors that are missing, unknown, not floats, not finite, or have other shapes.
    """
    prefix = next((prefix for prefix in TENSOR_PREFIXES if prefix + _MARK in tensors), None)
    if prefix is None:
        raise WeightsError(f"this is not a BERT checkpoint: none of its {len(tensors)} tensors is called {_MARK}")
    by_name: dict[str, tuple[str, np.ndarray]] = {}
    for name, tensor in tensors.items():
        short = _modern(name.removeprefix(prefix))
        if short == "embeddings.position_ids":
            continue
        if short in by_name:
            raise WeightsError(f"{by_name[short][0]} and {name} are the same tensor of BERT; remove one of them")
        by_name[short] = (name, tensor)
    entries = list(_encoder(config, vocabulary_size))
    for head in _heads(config, vocabulary_size):
        if any(name.startswith(head.prefix) for name in by_name):
            entries += head.entries
    _check(by_name, entries)

    trees: dict[str, Any] = {"encoder": {}, "heads": {}}
    for entry in entries:
        arrays = [by_name[name][1] for name in entry.names]
        _put(trees[entry.tree], entry.path, entry.join([np.asarray(array, np.float32) for array in arrays]))
    trees = _stacked(trees)
    return BertWeights(trees["encoder"], trees["heads"] or None)


def to_huggingface(
    params: Params, config: BertConfig, vocabulary_size: int, heads: Params | None = None
) -> dict[str, np.ndarray]:
    """Tensors by Transformers' names: those of BertModel, or with heads those of BertForPreTraining or of one head.

    Args:
      params: parameters of `Bert`.
      config: the model's shape; its positions are learned, and it has neither `pre_norm` nor `scale_embeddings`, since
        Transformers' BERT does not support other variants.
      vocabulary_size: V.
      heads: parameters of `PretrainingHeads`, or of one of the two heads.

    Returns:
      Copies, float32. `from_huggingface` converts them to the same bits.

    Raises:
      WeightsError: for variants that Transformers' BERT does not support, and parameters that do not fit the config.
    """
    strange = [
        f"{name} = {getattr(config, name)}"
        for name in ("positions", "pre_norm", "scale_embeddings")
        if getattr(config, name) != getattr(BertConfig(), name)
    ]
    if strange:
        raise WeightsError(f"Transformers' BERT does not support {', '.join(strange)}")
    trees = {"encoder": params, "heads": heads}
    tensors: dict[str, np.ndarray] = {}
    prefix = "" if heads is None else "bert."
    entries = list(_encoder(config, vocabulary_size))
    for head in _heads(config, vocabulary_size):
        if heads is not None and any(entry.path[0] in heads for entry in head.entries):
            entries += head.entries
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
            whole = name if name.startswith("cls.") else prefix + name
            tensors[whole] = np.array(part, order="C")
    if "cls.predictions.bias" in tensors:
        for copy, original in _COPIES.items():
            tensors[copy] = tensors[original if original in tensors else prefix + original].copy()
    return tensors


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


_COPIES = {
    "cls.predictions.decoder.weight": "embeddings.word_embeddings.weight",
    "cls.predictions.decoder.bias": "cls.predictions.bias",
}
"""Tensors that some files store twice: the output layer of masked tokens shares the embedding."""


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


def _encoder(config: BertConfig, vocabulary_size: int) -> Iterator[_Entry]:
    tree, width, hidden = "encoder", config.width, config.feed_forward_width or 4 * config.width
    embeddings = "embeddings"
    yield _plain(tree, ("tokens", "embedding"), f"{embeddings}.word_embeddings.weight", vocabulary_size, width)
    yield _plain(tree, ("positions",), f"{embeddings}.position_embeddings.weight", config.max_positions, width)
    yield _plain(tree, ("segments",), f"{embeddings}.token_type_embeddings.weight", config.num_segments, width)
    yield from _norm(tree, ("embedding_norm",), f"{embeddings}.LayerNorm", width)
    for layer in range(config.num_layers):
        here = f"encoder.layer.{layer}"
        attention = tuple(f"{here}.attention.self.{part}" for part in ("query", "key", "value"))
        block = "blocks"
        yield from _dense(tree, (block, "attention", "qkv"), attention, width, width, layer, heads=config.num_heads)
        yield from _dense(tree, (block, "attention", "out"), (f"{here}.attention.output.dense",), width, width, layer)
        yield from _norm(tree, (block, "attention_norm"), f"{here}.attention.output.LayerNorm", width, layer)
        yield from _dense(tree, (block, "feed_forward", "up"), (f"{here}.intermediate.dense",), hidden, width, layer)
        yield from _dense(tree, (block, "feed_forward", "down"), (f"{here}.output.dense",), width, hidden, layer)
        yield from _norm(tree, (block, "feed_forward_norm"), f"{here}.output.LayerNorm", width, layer)
    if config.use_pooler:
        yield from _dense(tree, ("pooler",), ("pooler.dense",), width, width)


class _Head(NamedTuple):
    """A pretraining head: the prefix of its tensors' names, and its parameters."""

    prefix: str
    entries: list[_Entry]


def _heads(config: BertConfig, vocabulary_size: int) -> tuple[_Head, _Head]:
    """Masked tokens and next sentences; a file may have only one of them."""
    tree, width, masked = "heads", config.width, "cls.predictions."
    return (
        _Head(
            masked,
            [
                *_dense(tree, ("transform",), (f"{masked}transform.dense",), width, width),
                *_norm(tree, ("norm",), f"{masked}transform.LayerNorm", width),
                _plain(tree, ("token_bias",), f"{masked}bias", vocabulary_size),
            ],
        ),
        _Head("cls.seq_relationship.", list(_dense(tree, ("follows",), ("cls.seq_relationship",), 2, width))),
    )


def _modern(name: str) -> str:
    """Files from the original TensorFlow checkpoints call the parameters of a normalisation gamma and beta."""
    return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")


def _check(by_name: dict[str, tuple[str, np.ndarray]], entries: list[_Entry]) -> None:
    """Raises WeightsError unless `by_name` contains exactly the tensors of the entries."""
    expected = {name: shape for entry in entries for name, shape in zip(entry.names, entry.shapes, strict=True)}
    wrong = [f"missing: {name} {shape}" for name, shape in expected.items() if name not in by_name]
    own = {theirs.partition(".")[0] for name, (theirs, _) in by_name.items() if name in expected}
    unknown: set[str] = set()
    for name, (theirs, tensor) in by_name.items():
        if name in _COPIES and _COPIES[name] in by_name:
            if not np.array_equal(tensor, by_name[_COPIES[name]][1]):
                wrong.append(f"{theirs} is not tied: it differs from {_COPIES[name]}")
        elif name not in expected:
            wrong.append(f"unknown: {theirs} {tensor.shape}")
            first = theirs.partition(".")[0]
            unknown.add(
                theirs if first in own or first == theirs else f"{first}."
            )  # never a prefix that would also leave out tensors of BERT
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
        raise WeightsError(f"tensors that do not fit this BERT: {len(wrong)}{lines}{more}{hint}")


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
