"""LoRA: a pretrained matrix W_0 stays unchanged, and the product of two small matrices, its factors, is added.

    W = W_0 + (alpha / r) A B,    A [inputs, r],    B [r, outputs]

The loss depends on A and B only through W, so their gradients follow from the gradient G of W:

    dA = (alpha / r) G B^T,    dB = (alpha / r) A^T G

So LoRA is a transformation of gradients around an optimizer. A run's parameters are the sums W. The factors and their
moments are state of the optimizer.

Source: Hu et al. 2022, section 4.1.
"""

import dataclasses
import string
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax.traverse_util import flatten_dict, unflatten_dict

from jaxnlp.models import Parameter
from jaxnlp.saving.serialization import ConfigError
from jaxnlp.typing import Array, Params, PyTree
from train.optimizer import OptimizerConfig
from train.optimizer.partial import Index, leave_frozen

Path = tuple[str, ...]
Table = Callable[[Path], Parameter]
A, B = "lora_a", "lora_b"
"""Names of the factors, at the end of their matrix's path."""


class LoRAState(NamedTuple):
    """The factors, as nested dicts, and the state of the optimizer for them and the other parameters."""

    factors: PyTree
    optimizer: PyTree


def adapted(table: Table, targets: tuple[str, ...]) -> Callable[[Path], bool]:
    """Whether the parameter at a path has factors: a kernel of a dense layer that does not map to outputs.

    Args:
      table: the model's, `ModelConfig.parameter`.
      targets: names of dense layers, or of modules around them; () = all dense layers.
    """

    def has_factors(path: Path) -> bool:
        entry = table(path)
        return entry.dense and not entry.head and (not targets or not set(targets).isdisjoint(path))

    return has_factors


def with_factors(table: Table) -> Table:
    """The model's table with the factors of its matrices."""

    def entry(path: Path) -> Parameter:
        if path[-1] not in (A, B):
            return table(path)
        matrix = table(path[:-1])
        inputs, packed, outputs = _split(matrix.axes)
        first = matrix.axes[:inputs]
        axes = first + matrix.axes[inputs] + packed + "r" if path[-1] == A else first + "r" + packed + outputs
        return dataclasses.replace(matrix, axes=axes)

    return entry


def with_lora(
    optimizer: optax.GradientTransformationExtraArgs,
    config: OptimizerConfig,
    table: Table,
    *,
    frozen: Callable[[Path], bool],
    rows: Callable[[Path], Index | None],
    seed: int,
) -> optax.GradientTransformationExtraArgs:
    """An optimizer that trains factors, output layers and the rows of new tokens.

    Args:
      optimizer: of parameters with factors.
      config: has the options of LoRA.
      table: the model's, `ModelConfig.parameter`.
      frozen: whether the parameter at a path is not trained.
      rows: index of the trained rows of the parameter at a path, such as those of new tokens; None = none.
      seed: of the initial factors.
    """

    def whole(path: Path) -> bool:
        if path[-1] in (A, B):
            return True
        in_module = len(path) > 1  # PEFT stores modules: a bias of the outputs that is in none, such as Marian's, stays
        return config.lora_heads and in_module and table(path).head and not frozen(path)

    def trained_rows(path: Path) -> Index | None:
        return None if whole(path) or frozen(path) else rows(path)

    has_factors = adapted(table, config.lora_targets)
    return low_rank(
        leave_frozen(optimizer, lambda path: not whole(path) and trained_rows(path) is None, trained_rows),
        lambda path: has_factors(path) and not frozen(path),
        table,
        rank=config.lora_rank,
        alpha=config.lora_alpha,
        seed=seed,
    )


def low_rank(
    optimizer: optax.GradientTransformationExtraArgs,
    has_factors: Callable[[Path], bool],
    table: Table,
    *,
    rank: int,
    alpha: float,
    seed: int,
) -> optax.GradientTransformationExtraArgs:
    """Moves matrices by the change of their product of factors, which the optimizer trains.

    Queries, keys and values have separate factors, also in one kernel, and so has each block. Initially A is uniform in
    +-1 / sqrt(inputs), as in PEFT, and B is 0.

    Args:
      optimizer: for the parameters, with factors instead of their matrices; see `with_factors`.
      has_factors: whether the parameter at a path has factors.
      table: the model's, `ModelConfig.parameter`.
      rank: r.
      alpha: of the product's scale, alpha / r.
      seed: of A.

    Raises: ConfigError, from `init`, when no parameter has factors.
    """
    scale = alpha / rank

    def replaced(params: dict[Path, Array], factors: dict[Path, Array]) -> PyTree:
        return unflatten_dict({path: x for path, x in params.items() if (*path, A) not in factors} | factors)

    def init(params: Params) -> LoRAState:
        flat, factors = flatten_dict(params), {}
        for path, matrix in flat.items():
            if has_factors(path):
                shape_a, shape_b = factor_shapes(table(path).axes, matrix.shape, rank)
                key = jax.random.fold_in(jax.random.key(seed), zlib.crc32("/".join(path).encode()))
                most = matrix.shape[_split(table(path).axes)[0]] ** -0.5
                factors[*path, A] = jax.random.uniform(key, shape_a, matrix.dtype, -most, most)
                factors[*path, B] = jnp.zeros(shape_b, matrix.dtype)
        if not factors:
            layers = sorted({path[-2] for path in flat if table(path).dense and not table(path).head})
            raise ConfigError(
                "optimizer.lora_targets must name dense layers of the model, or modules around them; its dense layers "
                f"are {', '.join(layers) or '(none)'}"
            )
        return LoRAState(unflatten_dict(factors), optimizer.init(replaced(flat, factors)))

    def update(updates: PyTree, state: LoRAState, params: Params | None = None, **extra: Any):
        if params is None:
            raise ValueError("the update of a product needs its factors: give update() params")
        grads, factors = flatten_dict(updates), flatten_dict(state.factors)
        matrices = {path: Product(table(path).axes, scale) for path in grads if (*path, A) in factors}
        of_factors = {}
        for path, product in matrices.items():
            of_factors[*path, A], of_factors[*path, B] = product.gradients(
                grads[path], factors[*path, A], factors[*path, B]
            )
        moved, inner = optimizer.update(
            replaced(grads, of_factors), state.optimizer, replaced(flatten_dict(params), factors), **extra
        )
        moves = flatten_dict(moved)
        newer = {path: optax.apply_updates(factor, moves.pop(path)) for path, factor in factors.items()}
        for path, product in matrices.items():
            old, new = ((two[*path, A], two[*path, B]) for two in (factors, newer))
            moves[path] = product.change(*old, *new)
        return unflatten_dict(moves), LoRAState(unflatten_dict(newer), inner)

    return optax.GradientTransformationExtraArgs(init, update)


class Product(NamedTuple):
    """The scaled product of the factors of a matrix with these axes, `Parameter.axes`."""

    axes: str
    scale: float

    def __call__(self, a: Array, b: Array) -> Array:
        """The product [..., inputs, outputs...] of A and B, with the shape of the matrix."""
        kernel, of_a, of_b = self._subscripts
        return self.scale * jnp.einsum(f"{of_a},{of_b}->{kernel}", a, b, precision="highest")

    def gradients(self, grad: Array, a: Array, b: Array) -> tuple[Array, Array]:
        """The gradients of A and of B, with their shapes, for the gradient of the matrix."""
        kernel, of_a, of_b = self._subscripts
        of_grad = (
            jnp.einsum(f"{kernel},{of_b}->{of_a}", grad, b, precision="highest"),
            jnp.einsum(f"{kernel},{of_a}->{of_b}", grad, a, precision="highest"),
        )
        return self.scale * of_grad[0], self.scale * of_grad[1]

    def change(self, a: Array, b: Array, new_a: Array, new_b: Array) -> Array:
        """The difference of the products of new and old factors, with the shape of the matrix, without cancellation."""
        return self(new_a - a, new_b) + self(a, new_b - b)

    @property
    def _subscripts(self) -> tuple[str, str, str]:
        """`einsum` subscripts of the matrix, A and B."""
        letters = string.ascii_lowercase[: len(self.axes)]
        inputs, packed, _ = _split(self.axes)
        first, own, last = letters[:inputs], letters[inputs], letters[inputs + 1 :]
        return letters, first + own + last[: len(packed)] + "z", first + "z" + last


def factor_shapes(axes: str, shape: tuple[int, ...], rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The shapes of A and B for a matrix with these axes, `Parameter.axes`, and this shape: [L, D, 3, H, K] has A [L,
    D, 3, r] and B [L, r, 3, H, K]."""
    inputs, packed, _ = _split(axes)
    return (*shape[: inputs + 1 + len(packed)], rank), (*shape[:inputs], rank, *shape[inputs + 1 :])


def _split(axes: str) -> tuple[int, str, str]:
    """The index of the axis of inputs, the digit of packed matrices or "", and the axes of outputs."""
    inputs = int(axes.startswith("L"))
    rest = axes[inputs + 1 :]
    return (inputs, rest[:1], rest[1:]) if rest[:1].isdigit() else (inputs, "", rest)
