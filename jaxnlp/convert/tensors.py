"""Tables of tensors: the PyTorch tensors of each parameter, and the conversion in both directions."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np


class WeightsError(ValueError):
    """Tensors do not fit the model; the message lists them."""


class TensorEntry(NamedTuple):
    """One parameter, and its tensors.

    Attributes:
      tree: the name of its tree of parameters.
      path: path of the parameter; a number at its end is the index in a stack.
      names, shapes: of the tensors.
      join: converts tensors to the parameter.
      split: converts the parameter to tensors.
    """

    tree: str
    path: tuple[str | int, ...]
    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    join: Callable[[list[np.ndarray]], np.ndarray]
    split: Callable[[np.ndarray], list[np.ndarray]]


def plain(tree: str, path: tuple[str | int, ...], name: str, *shape: int) -> TensorEntry:
    """A parameter that is one tensor, unchanged."""
    return TensorEntry(tree, path, (name,), (shape,), lambda arrays: arrays[0].copy(), lambda array: [array])


def kernel(
    tree: str,
    path: tuple[str | int, ...],
    names: Sequence[str],
    inputs: int,
    axes: tuple[int, ...],
    *,
    transposed: bool = True,
    part: int = 0,
    parts: int = 1,
) -> TensorEntry:
    """The matrix of a dense layer, [inputs, *axes], of one or more matrices side by side.

    Args:
      names: of the tensors.
      transposed: whether a tensor is [features, inputs], as in PyTorch's Linear; otherwise it is [inputs, features], as
        in Transformers' Conv1D.
      part, parts: the index and number of equal parts of the features; other parts are other parameters.
    """
    features = math.prod(axes) // len(names)

    def turned(array: np.ndarray) -> np.ndarray:
        return array.T if transposed else array

    def join(arrays: list[np.ndarray]) -> np.ndarray:
        own = [np.split(turned(array), parts, axis=1)[part] for array in arrays]
        return np.concatenate(own, axis=1).reshape(inputs, *axes)

    def split(array: np.ndarray) -> list[np.ndarray]:
        _expect(array, (inputs, *axes))
        return [turned(part) for part in np.split(array.reshape(inputs, -1), len(names), axis=1)]

    shape = (parts * features, inputs) if transposed else (inputs, parts * features)
    return TensorEntry(tree, path, tuple(f"{name}.weight" for name in names), (shape,) * len(names), join, split)


def ones(tree: str, path: tuple[str | int, ...], *shape: int) -> TensorEntry:
    """A parameter without a tensor, because nothing reads it: ones."""
    return TensorEntry(tree, path, (), (), lambda arrays: np.ones(shape, np.float32), lambda array: [])


def dense(
    tree: str,
    path: tuple[str, ...],
    names: Sequence[str],
    inputs: int,
    axes: tuple[int, ...],
    *stack: int,
    transposed: bool = True,
    use_bias: bool = True,
) -> Iterator[TensorEntry]:
    """A dense layer: `kernel`, and the bias [*axes] in as many parts. Args: stack: its index in a stack of blocks."""
    features = math.prod(axes) // len(names)

    def join(arrays: list[np.ndarray]) -> np.ndarray:
        return np.concatenate(arrays).reshape(axes)

    def split(array: np.ndarray) -> list[np.ndarray]:
        _expect(array, axes)
        return np.split(array.reshape(-1), len(names))

    yield kernel(tree, (*path, "kernel", *stack), names, inputs, axes, transposed=transposed)
    biases = tuple(f"{name}.bias" for name in names)
    if use_bias:
        yield TensorEntry(tree, (*path, "bias", *stack), biases, ((features,),) * len(names), join, split)


def norm(
    tree: str, path: tuple[str, ...], name: str, width: int, *stack: int, use_bias: bool = True
) -> Iterator[TensorEntry]:
    """A normalisation."""
    yield plain(tree, (*path, "scale", *stack), f"{name}.weight", width)
    if use_bias:
        yield plain(tree, (*path, "bias", *stack), f"{name}.bias", width)


class CrossNames(NamedTuple):
    """The tensors of a block's attention to a memory, in the same way.

    Attributes:
      q, kv: the layer of the queries, and those of keys and values.
      out, norm: the output layer, and the normalisation of the branch.
    """

    q: str
    kv: tuple[str, ...]
    out: str
    norm: str


class BlockNames(NamedTuple):
    """The tensors of a block, without `.weight` and `.bias`.

    Attributes:
      block: of each block, with {} for its index; the other names follow it.
      qkv: queries, keys and values: three layers, or one for all.
      attention, attention_norm: the output layer of the attention, and the normalisation of its branch.
      up, down, feed_forward_norm: the feed-forward layers, and the normalisation of their branch.
      gate: the layer of the gate; "" = none. The same as `up`: one layer has the gate's features, then `up`'s, without
        biases.
      head_norms: the normalisations of each head's queries and keys; () = none.
      cross: attention to a memory; None = none.
    """

    block: str
    qkv: tuple[str, ...]
    attention: str
    attention_norm: str
    up: str
    down: str
    feed_forward_norm: str
    gate: str = ""
    head_norms: tuple[str, ...] = ()
    cross: CrossNames | None = None


def blocks(
    tree: str,
    names: BlockNames,
    *,
    layers: int,
    heads: int,
    width: int,
    hidden: int,
    transposed: bool = True,
    prefix: tuple[str, ...] = (),
    head_width: int | None = None,
    key_heads: int | None = None,
    use_bias: bool = True,
    qkv_bias: bool | None = None,
    first_norm: bool = True,
) -> Iterator[TensorEntry]:
    """The blocks of a Transformer, stacked.

    Args:
      names: of a block.
      layers, heads, width, hidden: L, H, D and F.
      transposed: as for `kernel`.
      prefix: before each path.
      head_width: K; None = D / H.
      key_heads: G; None = H.
      use_bias: whether dense layers and normalisations have biases.
      qkv_bias: the same for queries, keys and values; None = as `use_bias`.
      first_norm: whether the first block normalises the attention's branch.
    """
    keys = head_width or width // heads
    of_qkv = use_bias if qkv_bias is None else qkv_bias

    def layer_of(
        name: str, part: str, own: Sequence[str], inputs: int, *axes: int, use_bias: bool = use_bias
    ) -> Iterator[TensorEntry]:
        path, whole = (*prefix, "blocks", name, part), [here + each for each in own]
        yield from dense(tree, path, whole, inputs, axes, layer, transposed=transposed, use_bias=use_bias)

    def norm_of(name: str, own: str) -> Iterator[TensorEntry]:
        yield from norm(tree, (*prefix, "blocks", f"{name}_norm"), here + own, width, layer, use_bias=use_bias)

    for layer in range(layers):
        here = names.block.format(layer)
        if key_heads in (None, heads):
            yield from layer_of("attention", "qkv", names.qkv, width, 3, heads, keys, use_bias=of_qkv)
        else:
            q, *kv = names.qkv
            yield from layer_of("attention", "q", (q,), width, heads, keys, use_bias=of_qkv)
            yield from layer_of("attention", "kv", kv, width, 2, key_heads, keys, use_bias=of_qkv)
        for part, name in zip(("q_norm", "k_norm"), names.head_norms, strict=False):
            path = (*prefix, "blocks", "attention", part)
            yield from norm(tree, path, here + name, keys, layer, use_bias=False)
        yield from layer_of("attention", "out", (names.attention,), heads * keys, width)
        if layer or first_norm:
            yield from norm_of("attention", names.attention_norm)
        else:
            yield ones(tree, (*prefix, "blocks", "attention_norm", "scale", layer), width)
        if names.cross is not None:
            yield from layer_of("cross_attention", "q", (names.cross.q,), width, heads, keys)
            yield from layer_of("cross_attention", "kv", names.cross.kv, width, 2, heads, keys)
            yield from layer_of("cross_attention", "out", (names.cross.out,), heads * keys, width)
            yield from norm_of("cross_attention", names.cross.norm)
        if names.gate == names.up:
            for share, name in enumerate(("gate", "up")):
                place: tuple[str | int, ...] = (*prefix, "blocks", "feed_forward", name, "kernel", layer)
                yield kernel(tree, place, (here + names.up,), width, (hidden,), part=share, parts=2)
        else:
            if names.gate:
                yield from layer_of("feed_forward", "gate", (names.gate,), width, hidden)
            yield from layer_of("feed_forward", "up", (names.up,), width, hidden)
        yield from layer_of("feed_forward", "down", (names.down,), hidden, width)
        yield from norm_of("feed_forward", names.feed_forward_norm)


def prefix_of(tensors: Iterable[str], prefixes: Sequence[str], mark: str, title: str) -> str:
    """The first of the prefixes under which the tensor `mark` exists.

    Raises: WeightsError without one: this is not such a checkpoint.
    """
    names = set(tensors)
    for prefix in prefixes:
        if prefix + mark in names:
            return prefix
    raise WeightsError(f"this is not a {title} checkpoint: none of its {len(names)} tensors is called {mark}")


def by_short_name(
    tensors: Mapping[str, np.ndarray], short: Callable[[str], str | None], title: str
) -> dict[str, tuple[str, np.ndarray]]:
    """The tensors, [...] each, with their own names, by their names in the table.

    Args:
      tensors: of any shapes [...], by their own names.
      short: the name in the table; None = unused.
      title: of the family, for messages.

    Raises: WeightsError for two names of one tensor.
    """
    held: dict[str, tuple[str, np.ndarray]] = {}
    for name, tensor in tensors.items():
        key = short(name)
        if key is None:
            continue
        if key in held:
            raise WeightsError(f"{held[key][0]} and {name} are the same tensor of {title}; remove one")
        held[key] = (name, tensor)
    return held


def join_all(
    held: Mapping[str, tuple[str, np.ndarray]], entries: Sequence[TensorEntry], copies: Mapping[str, str], title: str
) -> dict[str, Any]:
    """The trees of parameters with exactly these tensors: copies, float32.

    Args:
      held: tensors [...], each with its own name, by the name in the table.
      entries: the table.
      copies: tensors that some files store twice, by the name of the copy.
      title: of the family, for messages.

    Raises: WeightsError listing tensors that are missing, unknown, differ from their copies, or are not such floats.
    """
    _check(held, entries, copies, title)
    trees: dict[str, Any] = {}
    for entry in entries:
        arrays = [np.asarray(held[name][1], np.float32) for name in entry.names]
        _put(trees.setdefault(entry.tree, {}), entry.path, entry.join(arrays))
    return _stacked(trees)


def split_all(trees: Mapping[str, Any], entries: Iterable[TensorEntry]) -> dict[str, np.ndarray]:
    """The tensors of trees of parameters, by their names in the table: copies, float32.

    Raises: WeightsError for parameters that are missing or have other shapes.
    """
    tensors: dict[str, np.ndarray] = {}
    expected: dict[str, tuple[str, tuple[int, ...]]] = {}
    for entry in entries:
        path = "/".join(map(str, entry.path))
        try:
            parts = entry.split(np.asarray(_get(trees[entry.tree], entry.path), np.float32))
        except (KeyError, TypeError, IndexError, ValueError) as error:
            raise WeightsError(f"no parameter {path} that fits the config: {error}") from error
        for name, shape, part in zip(entry.names, entry.shapes, parts, strict=True):
            # A name that comes again has a further part of the tensor's rows.
            held = [tensors[name]] if name in tensors else []
            tensors[name] = np.concatenate([*held, part]) if held else np.array(part, order="C")
            expected[name] = path, shape
    for name, (path, shape) in expected.items():
        if tensors[name].shape != shape:
            raise WeightsError(f"{path} gives {name} {tensors[name].shape}, expected {shape}")
    return tensors


def _expect(array: np.ndarray, shape: tuple[int, ...]) -> None:
    if array.shape != shape:
        raise ValueError(f"its shape is {array.shape}, expected {shape}")


def _check(
    held: Mapping[str, tuple[str, np.ndarray]], entries: Sequence[TensorEntry], copies: Mapping[str, str], title: str
) -> None:
    expected = {name: shape for entry in entries for name, shape in zip(entry.names, entry.shapes, strict=True)}
    wrong = [f"missing: {name} {shape}" for name, shape in expected.items() if name not in held]
    own = {theirs.partition(".")[0] for name, (theirs, _) in held.items() if name in expected}
    unknown = set[str]()
    for name, (theirs, tensor) in held.items():
        if name in copies and copies[name] in held:
            if not np.array_equal(tensor, held[copies[name]][1]):
                wrong.append(f"{theirs} is not tied: it differs from {copies[name]}")
        elif name not in expected:
            wrong.append(f"unknown: {theirs} {tensor.shape}")
            first = theirs.partition(".")[0]
            # Never a prefix that would also leave out tensors of the model.
            unknown.add(theirs if first in own or first == theirs else f"{first}.")
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
        raise WeightsError(f"tensors that do not fit this {title}: {len(wrong)}{lines}{more}{hint}")


def _put(tree: dict[str, Any], path: tuple[str | int, ...], array: np.ndarray) -> None:
    """Collects arrays whose path ends with a number in a list, in numerical order."""
    names = [name for name in path if isinstance(name, str)]
    for name in names[:-1]:
        tree = tree.setdefault(name, {})
    if len(names) == len(path):
        tree[names[-1]] = array
    else:
        tree.setdefault(names[-1], []).append(array)


def _stacked(tree: Any) -> Any:
    """Stacks lists of arrays into arrays, in place: a list is freed before the next one is stacked."""
    if isinstance(tree, dict):
        for name in tree:
            tree[name] = _stacked(tree[name])
        return tree
    return np.stack(tree) if isinstance(tree, list) else tree


def _get(tree: Any, path: tuple[str | int, ...]) -> Any:
    for name in path:
        tree = tree[name]
    return tree
