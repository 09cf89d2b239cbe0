"""Reads the text of a program: StableHLO as JAX lowers it, and HLO as XLA has optimised it."""

import collections
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

_STABLEHLO = re.compile(r'^\s+(?:%\S+ = )?"?stablehlo\.(\w+)', re.MULTILINE)
_COMPUTATION = re.compile(r"(ENTRY )?%?([\w.\-]+) \(.*\) -> .*\{$")
_INSTRUCTION = re.compile(r"\s+(?:ROOT )?%?([\w.\-]+) = (.*?) ([a-z][\w\-]*)\((.*)$")
_ARRAY = re.compile(r"([a-z]\w*)\[([\d,]*)\]")
_FREE = frozenset(("parameter", "constant", "get-tuple-element", "tuple", "bitcast", "while", "conditional", "call"))
"""Instructions that run no kernel of their own."""
COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter", "collective-permute", "all-to-all")


class Instruction(NamedTuple):
    """An instruction of a computation.

    Attributes:
      name: unique in the program.
      type: its array, such as `f32[8,16]{1,0}`, or tuple of arrays.
      op: such as `fusion`.
      operands: the names of its operands.
      line: the whole line.
    """

    name: str
    type: str
    op: str
    operands: tuple[str, ...]
    line: str

    def attribute(self, name: str) -> str | None:
        """The name of the computation that an attribute such as `calls` has."""
        found = re.search(rf"\b{name}=%?([\w.\-]+)", self.line)
        return None if found is None else found[1]

    @property
    def target(self) -> str | None:
        """The function that a custom call calls."""
        found = re.search(r'custom_call_target="([^"]+)"', self.line)
        return None if found is None else found[1]


class Program(NamedTuple):
    """An optimised program: its computations by name, and the name of the one that starts."""

    computations: Mapping[str, Sequence[Instruction]]
    entry: str

    def executed(self, computation: str | None = None, times: int = 1) -> Iterator[tuple[Instruction, int]]:
        """The instructions that run, and how often. A loop of unknown length, and each branch, counts once."""
        for one in self.computations[computation or self.entry]:
            yield one, times
            if one.op == "while":
                known = re.search(r'known_trip_count"?:\s*\{"?n"?:"?(\d+)', one.line)
                yield from self.executed(one.attribute("body"), times * int(known[1]) if known else times)
            elif one.op == "call":
                yield from self.executed(one.attribute("to_apply"), times)
            elif one.op == "conditional":
                for branch in _branches(one):
                    yield from self.executed(branch, times)

    def kernels(self) -> Iterator[tuple[Instruction, int]]:
        """The executed instructions that compute or move something, and how often each runs."""
        return ((one, n) for one, n in self.executed() if one.op not in _FREE and not one.op.endswith("-done"))

    def body(self, instruction: Instruction) -> Sequence[Instruction]:
        """The instructions inside a fusion, also in fusions inside it; () for others."""
        own = self.computations.get(instruction.attribute("calls") or "", ())
        return [one for outer in own for one in (outer, *self.body(outer))]

    def custom_calls(self) -> dict[str, int]:
        """How many custom calls of each target the program has."""
        targets = (one.target for one, _ in self.kernels() if one.op.startswith("custom-call"))
        return dict(collections.Counter(filter(None, targets)))

    def collectives(self) -> dict[str, int]:
        """How many collective operations of each kind the program has."""
        kinds = (one.op.removesuffix("-start") for one, _ in self.kernels())
        return dict(collections.Counter(kind for kind in kinds if kind in COLLECTIVES))


def parse(text: str) -> Program:
    """Parses the text of an optimised program, `compiled.as_text()`."""
    computations: dict[str, list[Instruction]] = {}
    entry, current = "", list[Instruction]()
    for line in text.splitlines():
        if found := _COMPUTATION.match(line):
            current = computations[found[2]] = []
            entry = found[2] if found[1] else entry
        elif found := _INSTRUCTION.match(line):
            current.append(Instruction(found[1], found[2], found[3], _operands(found[4]), line))
    return Program(computations, entry)


def lowered_counts(text: str) -> tuple[int, int]:
    """The numbers of operations and of products in the text of a lowered program, `lowered.as_text()`."""
    ops = _STABLEHLO.findall(text)
    return len(ops), sum(op in ("dot_general", "convolution") for op in ops)


def arrays(text: str) -> list[tuple[str, tuple[int, ...]]]:
    """Element type and shape of each array in a type."""
    return [(dtype, tuple(int(n) for n in shape.split(",") if n)) for dtype, shape in _ARRAY.findall(text)]


def bytes_of(text: str) -> int:
    """The size of a type."""
    return sum(math.prod(shape) * _width(dtype) for dtype, shape in arrays(text))


def _width(dtype: str) -> int:
    bits = re.search(r"\d+", dtype)
    return 1 if bits is None else max(1, int(bits[0]) // 8)


def _operands(rest: str) -> tuple[str, ...]:
    """The names before the bracket that closes the operands."""
    depth, end = 0, len(rest)
    for index, character in enumerate(rest):
        if character == ")" and depth == 0:
            end = index
            break
        depth += (character in "([{") - (character in ")]}")
    return tuple(re.findall(r"%([\w.\-]+)", rest[:end]))


def _branches(conditional: Instruction) -> list[str]:
    listed = re.search(r"branch_computations=\{([^}]*)\}", conditional.line)
    if listed is not None:
        return re.findall(r"%?([\w.\-]+)", listed[1])
    return [name for which in ("true", "false") if (name := conditional.attribute(f"{which}_computation")) is not None]
