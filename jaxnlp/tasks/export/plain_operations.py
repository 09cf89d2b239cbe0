"""Functions in fewer kinds of operations, which a converter to another format knows."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax import lax
from jax.extend.core import ClosedJaxpr, JaxprEqn, Literal

Rule = Callable[..., Sequence[Any]]


def plain(closed: ClosedJaxpr, *arguments: Any) -> list[Any]:
    """The results of a traced function. Calls are inlined; pad, stack, the remainder of ints, and reversed loops become
    concatenations, divisions and forward loops."""
    return _evaluated(closed.jaxpr, closed.consts, arguments)


def _evaluated(jaxpr: Any, consts: Sequence[Any], arguments: Sequence[Any]) -> list[Any]:
    values = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *arguments), strict=True))

    def read(variable: Any) -> Any:
        return variable.val if isinstance(variable, Literal) else values[variable]

    for eqn in jaxpr.eqns:
        operands = [read(variable) for variable in eqn.invars]
        rule = _RULES.get(eqn.primitive.name)
        if rule is not None:
            results = rule(eqn, *operands)
        else:
            result = eqn.primitive.bind(*operands, **eqn.params)
            results = result if eqn.primitive.multiple_results else [result]
        values.update(zip(eqn.outvars, results, strict=True))
    return [read(variable) for variable in jaxpr.outvars]


def _inlined(parameter: str) -> Rule:
    """The rule of a call whose function is this parameter."""

    def rule(eqn: JaxprEqn, *operands: Any) -> list[Any]:
        return _called(eqn.params[parameter], operands)

    return rule


def _called(inner: Any, operands: Sequence[Any]) -> list[Any]:
    """The results of an inner function. Args: inner: with or without its constants."""
    if isinstance(inner, ClosedJaxpr):
        return _evaluated(inner.jaxpr, inner.consts, operands)
    return _evaluated(inner, (), operands)


def _counts(params: dict[str, Any]) -> tuple[int, int]:
    """Numbers of a loop's constant and carried operands."""
    if "ft_in" in params:  # from JAX 0.11 on
        consts, carried, _ = params["ft_in"].unpack()
        return len(consts), len(carried)
    return params["num_consts"], params["num_carry"]


def _scan(eqn: JaxprEqn, *operands: Any) -> list[Any]:
    first, carried = _counts(eqn.params)
    consts, carry, rows = operands[:first], operands[first : first + carried], operands[first + carried :]

    def step(carry: Any, row: Any) -> tuple[Any, Any]:
        results = _called(eqn.params["jaxpr"], (*consts, *carry, *row))
        return tuple(results[:carried]), tuple(results[carried:])

    def turned(arrays: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(lax.rev(array, (0,)) for array in arrays) if eqn.params["reverse"] else tuple(arrays)

    last, results = lax.scan(step, tuple(carry), turned(rows), length=None if rows else eqn.params["length"])
    return [*last, *turned(results)]


def _stack(eqn: JaxprEqn, *operands: Any) -> list[Any]:
    axis = eqn.params["axis"]
    return [lax.concatenate([lax.expand_dims(operand, (axis,)) for operand in operands], axis)]


def _pad(eqn: JaxprEqn, x: Any, value: Any) -> list[Any]:
    for axis, (before, after, between) in enumerate(eqn.params["padding_config"]):
        if between != 0 or any(isinstance(size, int) and size < 0 for size in (before, after)):
            raise ValueError(f"padding {eqn.params['padding_config']} cannot be converted: it is not a concatenation")

        def fill(size: Any, axis: int = axis, x: Any = x) -> list[Any]:
            shape = (*x.shape[:axis], size, *x.shape[axis + 1 :])
            return [] if isinstance(size, int) and size == 0 else [lax.broadcast_in_dim(value, shape, ())]

        parts = [*fill(before), x, *fill(after)]
        x = lax.concatenate(parts, axis) if len(parts) > 1 else x
    return [x]


def _rem(eqn: JaxprEqn, x: Any, y: Any) -> list[Any]:
    integer = jax.numpy.issubdtype(x.dtype, jax.numpy.integer)
    return [lax.sub(x, lax.mul(lax.div(x, y), y)) if integer else eqn.primitive.bind(x, y)]


_RULES: dict[str, Rule] = {
    "jit": _inlined("jaxpr"),
    "remat2": _inlined("jaxpr"),
    "custom_jvp_call": _inlined("call_jaxpr"),
    "custom_vjp_call": _inlined("call_jaxpr"),
    "scan": _scan,
    "stack": _stack,
    "pad": _pad,
    "rem": _rem,
}
