"""Tables of a model's parameters, in which `ModelConfig.parameter` looks up paths."""

from collections.abc import Mapping
from typing import Literal

from jaxnlp.models import Parameter
from jaxnlp.nn.attention import Positions
from jaxnlp.nn.transformer import Mixer

Path = tuple[str, ...]
Table = dict[Path, Parameter]


def find(table: Table, path: Path) -> Parameter:
    """The entry of a path. Raises: KeyError, with the path, if the model does not have it."""
    path = tuple(path)
    if path not in table:
        raise KeyError(f"this model has no parameter {'/'.join(path)}")
    return table[path]


def dense(path: Path, kernel: str, *, use_bias: bool = True) -> dict[Path, str]:
    """A dense layer: its kernel has these axes, and its bias all but the first."""
    axes = {(*path, "kernel"): kernel}
    return axes | ({(*path, "bias"): kernel[1:]} if use_bias else {})


def norm(path: Path, *, use_bias: bool = True) -> dict[Path, str]:
    """A normalisation layer."""
    return {(*path, "scale"): "D"} | ({(*path, "bias"): "D"} if use_bias else {})


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
      prefix: goes before each path.
      stacked: whether each has the first axis L.
      head: whether they map to the model's outputs.
    """
    return {
        (*prefix, *path): Parameter("L" * stacked + letters, depth, path[-1].endswith("kernel"), head)
        for path, letters in axes.items()
    }


def block(
    mixer: Mixer = "dot",
    *,
    cross: bool = False,
    grouped: bool = False,
    positions: Positions = "none",
    normalise_queries: bool = True,
    use_bias: bool = True,
) -> dict[Path, str]:
    """Axes of a `TransformerBlock`, by path.

    Args:
      mixer: see `TransformerBlock`.
      cross: whether attention to a memory follows the self-attention.
      grouped: whether there are fewer key heads than heads.
      positions: see `TransformerBlock`; the tables of relative positions have one row per bucket or distance.
      normalise_queries: with the mixer `memory`, whether queries are normalised.
      use_bias: whether dense and normalisation layers have biases.
    """
    to_memory = {"q": "DHK", "kv": "D2HK"}
    of_mixer = {
        "dot": {"q": "DHK", "kv": "D2GK"} if grouped else {"qkv": "D3HK"},
        "synthesizer": {"zv": "D2HK"},
        "memory": to_memory,
    }
    axes: dict[Path, str] = {}
    branches = {"attention": of_mixer[mixer]} | ({"cross_attention": to_memory} if cross else {})
    for branch, projections in branches.items():
        for name, kernel in (projections | {"out": "DD"}).items():
            axes |= dense((branch, name), kernel, use_bias=use_bias)
    if mixer == "synthesizer":
        axes |= dense(("attention",), "KS", use_bias=use_bias)
    if positions == "relative_bias":
        axes[("attention", "relative_bias")] = "NH"
    if positions == "relative_vectors":
        axes |= {("attention", name): "NK" for name in ("relative_keys", "relative_values")}
    axes |= dense(("feed_forward", "up"), "DF", use_bias=use_bias)
    axes |= dense(("feed_forward", "down"), "FD", use_bias=use_bias)
    if mixer == "memory":
        norms = ["query_norm", "memory_norm"] if normalise_queries else ["memory_norm"]
    else:
        norms = ["attention_norm", "cross_attention_norm"] if cross else ["attention_norm"]
    for name in (*norms, "feed_forward_norm"):
        axes |= norm((name,), use_bias=use_bias)
    return axes
