"""Tables of a model's parameters for `ModelConfig.parameter`."""

from collections.abc import Mapping
from typing import Literal

from jaxnlp.models import Parameter
from jaxnlp.nn.attention import Positions, RelativeBias, RelativeVectors

Path = tuple[str, ...]
Table = dict[Path, Parameter]
Axes = dict[Path, str]
"""Glossary letters of the axes of parameters, by path."""


class DenseAxes(str):
    """Glossary letters of the kernel of a `nn.dense.Dense`."""


def find(table: Table, path: Path) -> Parameter:
    """The entry of a path. Raises: KeyError, with the path, if the model does not have it."""
    path = tuple(path)
    if path not in table:
        raise KeyError(f"this model has no parameter {'/'.join(path)}")
    return table[path]


def dense(path: Path, kernel: str, *, use_bias: bool = True) -> Axes:
    """A `nn.dense.Dense`: its kernel has these axes, and its bias all but the first."""
    return affine(path, DenseAxes(kernel), use_bias=use_bias)


def affine(path: Path, kernel: str, *, use_bias: bool = True) -> Axes:
    """A kernel with these axes and a bias with all but the first, of a layer that is not a `nn.dense.Dense`."""
    return {(*path, "kernel"): kernel} | ({(*path, "bias"): kernel[1:]} if use_bias else {})


def norm(path: Path, axis: str = "D", *, use_bias: bool = True) -> Axes:
    """A normalisation layer of vectors along this axis."""
    return {(*path, "scale"): axis} | ({(*path, "bias"): axis} if use_bias else {})


def entries(
    axes: Mapping[Path, str],
    depth: int | Literal["below", "above"] = "above",
    *,
    prefix: Path = (),
    stacked: bool = False,
    head: bool = False,
) -> dict[Path, Parameter]:
    """Entries of parameters with these axes; parameters with the name kernel are matrices.

    Args:
      axes: glossary letters, by path.
      depth: of all of them.
      prefix: before each path.
      stacked: whether they belong to a block of `nn.transformer.stack`, with L as first axis.
      head: whether they map to the model's outputs.
    """
    return {
        (*prefix, *path): Parameter(
            axes="L" * stacked + letters,
            depth=depth,
            matrix=path[-1].endswith("kernel"),
            head=head,
            scanned=stacked,
            dense=isinstance(letters, DenseAxes),
        )
        for path, letters in axes.items()
    }


def recurrent(axes: Axes, layers: int, *, name: str = "recurrent", bidirectional: bool = True) -> Table:
    """Entries of recurrent layers with these axes; the depth of each layer is its index."""
    table: Table = {}
    for index in range(layers):
        for direction in ("forward", "backward") if bidirectional else ("forward",):
            table |= entries(axes, index, prefix=(name, f"layer_{index}_{direction}"))
    return table


def self_attention(
    *,
    grouped: bool = False,
    positions: Positions = None,
    use_bias: bool = True,
    qkv_bias: bool | None = None,
    head_norm: bool = False,
) -> Axes:
    """Axes of a `SelfAttention`.

    Args:
      grouped: whether there are fewer key heads than heads.
      positions: see `SelfAttention`; the tables of relative positions have one row per bucket or distance.
      use_bias: whether the projections have biases.
      qkv_bias: the same for queries, keys and values; None = as `use_bias`.
      head_norm: whether each head's queries and keys are normalised, without a shift.
    """
    projections = {"q": "DHK", "kv": "D2GK"} if grouped else {"qkv": "D3HK"}
    axes = _projections(projections, use_bias=use_bias if qkv_bias is None else qkv_bias)
    axes |= dense(("out",), "OD", use_bias=use_bias)
    if head_norm:
        axes |= {(name, "scale"): "K" for name in ("q_norm", "k_norm")}
    if isinstance(positions, RelativeBias):
        axes[("relative_bias",)] = "NH"
    if isinstance(positions, RelativeVectors):
        axes |= {("relative_keys",): "NK", ("relative_values",): "NK"}
    return axes


def cross_attention(*, use_bias: bool = True) -> Axes:
    """Axes of a `CrossAttention`."""
    return _projections({"q": "DHK", "kv": "D2HK", "out": "OD"}, use_bias=use_bias)


def feed_forward(*, gated: bool = False, use_bias: bool = True) -> Axes:
    """Axes of a `FeedForward` layer and its normalisation."""
    kernels = {"up": "DF", "down": "FD"} | ({"gate": "DF"} if gated else {})
    axes = under("feed_forward", _projections(kernels, use_bias=use_bias))
    return axes | norm(("feed_forward_norm",), use_bias=use_bias)


def block(mixer: Axes | None = None, *, cross: bool = False, gated: bool = False, use_bias: bool = True) -> Axes:
    """Axes of a `TransformerBlock`.

    Args:
      mixer: of its mixer; None = self-attention.
      cross: whether attention to a memory follows the mixer.
      gated: whether the feed-forward layer has a gate.
      use_bias: whether dense and normalisation layers have biases.
    """
    axes = under("attention", self_attention(use_bias=use_bias) if mixer is None else mixer)
    axes |= norm(("attention_norm",), use_bias=use_bias)
    if cross:
        axes |= under("cross_attention", cross_attention(use_bias=use_bias))
        axes |= norm(("cross_attention_norm",), use_bias=use_bias)
    return axes | feed_forward(gated=gated, use_bias=use_bias)


def under(name: str, axes: Axes) -> Axes:
    """The axes of a submodule of this name."""
    return {(name, *path): letters for path, letters in axes.items()}


def _projections(kernels: Mapping[str, str], *, use_bias: bool) -> Axes:
    axes: Axes = {}
    for name, kernel in kernels.items():
        axes |= dense((name,), kernel, use_bias=use_bias)
    return axes
