"""Reads the text of a program: StableHLO as JAX lowers it, and HLO as XLA has optimised it."""

import collections
import functools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

_STABLEHLO = re.compile(r'^\s+(?:%\S+ = )?"?stablehlo\.(\w+)', re.MULTILINE)
_FUNCTION = re.compile(r"^  func\.func (?:\w+ )?@([\w.$-]+|\"[^\"]+\")\((.*?)^  }$", re.MULTILINE | re.DOTALL)
_CALL = re.compile(r"^\s+(?:%\S+ = )?(?:func\.)?call @([\w.$-]+|\"[^\"]+\")\(", re.MULTILINE)
_COMPUTATION = re.compile(r"(ENTRY )?%?([\w.\-]+) \(.*\) -> .*\{$")
_INSTRUCTION = re.compile(r"\s+(?:ROOT )?%?([\w.\-]+) = (.*?) ([a-z][\w\-]*)\((.*)$")
_ARRAY = re.compile(r"([a-z]\w*)\[([\d,]*)\]")
_FREE = frozenset(("parameter", "constant", "get-tuple-element", "tuple", "bitcast", "while", "conditional", "call"))
"""Instructions without a kernel."""
_GROUP = re.compile(
    r"replica_groups=(?:\{\{(?P<listed>[\d,]*)|\[\d+,(?P<size>\d+)\]|mesh\[(?P<mesh>[^\]]*)\].*?\{(?P<axes>'[^}]*)\})"
)
_AXIS = re.compile(r"'(\w+)'=(\d+)")
COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter", "collective-permute", "all-to-all")


class Instruction(NamedTuple):
    """An instruction of a computation.

    Attributes:
      name: unique in the program.
      type: of its array, such as `f32[8,16]{1,0}`, or tuple of arrays.
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
        """The computation of an attribute such as `calls`."""
        found = re.search(rf"\b{name}=%?([\w.\-]+)", self.line)
        return None if found is None else found[1]

    @property
    def target(self) -> str | None:
        """The function that a custom call calls."""
        found = re.search(r'custom_call_target="([^"]+)"', self.line)
        return None if found is None else found[1]


class Transfer(NamedTuple):
    """A collective operation.

    Attributes:
      kind: one of `COLLECTIVES`.
      bytes: that it reduces, scatters or sends on a device, or has gathered.
      devices: number of devices in each group that exchanges its parts.
      times: number of executions.
    """

    kind: str
    bytes: int
    devices: int
    times: int

    @property
    def link_bytes(self) -> float:
        """The bytes that each device sends in a ring, over all `times`: all parts but one, and for an all-reduce twice
        as much."""
        if self.kind == "collective-permute":
            return float(self.times * self.bytes)
        rounds = 2 if self.kind == "all-reduce" else 1
        return self.times * self.bytes * rounds * (self.devices - 1) / self.devices


class Program(NamedTuple):
    """An optimised program: its computations by name, and the name of the entry computation."""

    computations: Mapping[str, Sequence[Instruction]]
    entry: str

    def executed(self, computation: str | None = None, times: int = 1) -> Iterator[tuple[Instruction, int]]:
        """The executed instructions and their numbers of executions. A loop of unknown length, and each branch, counts
        once."""
        for one in self.computations[computation or self.entry]:
            yield one, times
            if one.op == "while":
                yield from self.executed(one.attribute("body"), times * self._turns(one))
            elif one.op == "call":
                yield from self.executed(one.attribute("to_apply"), times)
            elif one.op == "conditional":
                for branch in _branches(one):
                    yield from self.executed(branch, times)

    def _turns(self, loop: Instruction) -> int:
        """Number of turns of a loop: as XLA says, or up to the constant of its condition, as in JAX's scans; else 1."""
        known = re.search(r'known_trip_count"?:\s*\{"?n"?:"?(\d+)', loop.line)
        if known is not None:
            return int(known[1])
        *others, last = self.computations[loop.attribute("condition") or ""]
        limits = {one.name: re.search(r" constant\((\d+)\)", one.line) for one in others}
        found = limits.get(last.operands[1]) if last.op == "compare" and "direction=LT" in last.line else None
        return 1 if found is None else int(found[1])

    def kernels(self) -> Iterator[tuple[Instruction, int]]:
        """The executed instructions that compute or move something, and their numbers of executions."""
        return ((one, n) for one, n in self.executed() if one.op not in _FREE and not one.op.endswith("-done"))

    def body(self, instruction: Instruction) -> Sequence[Instruction]:
        """The instructions inside a fusion, also in fusions inside it; () for others."""
        own = self.computations.get(instruction.attribute("calls") or "", ())
        return [one for outer in own for one in (outer, *self.body(outer))]

    def custom_calls(self) -> dict[str, int]:
        """Number of custom calls by target."""
        targets = (one.target for one, _ in self.kernels() if one.op.startswith("custom-call"))
        return dict(collections.Counter(filter(None, targets)))

    def collectives(self) -> dict[str, int]:
        """Number of collective operations by kind."""
        return dict(collections.Counter(one.kind for one in self.transfers()))

    def transfers(self) -> list[Transfer]:
        """The executed collective operations. One that a TPU divides among several fusions counts once."""
        types = {one.name: one.type for body in self.computations.values() for one in body}
        found, divided = [], set[str]()
        for kernel, times in self.kernels():
            for one in (kernel, *self.body(kernel)):
                kind = one.op.removesuffix("-start")
                # A TPU names the parts of a transfer alike: a chain, which may share its channel with other transfers.
                parts = re.findall(r'channel_id=\d+|chain_id="\d+"', one.line)
                if kind not in COLLECTIVES or (len(parts) == 2 and " ".join(parts) in divided):
                    continue
                divided.add(" ".join(parts))
                devices = _devices_of(one)
                size = sum(bytes_of(types[name]) for name in one.operands)
                found.append(Transfer(kind, size * (devices if kind == "all-gather" else 1), devices, times))
        return found


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


def reused_arguments(text: str) -> int:
    """Number of arguments of an optimised program whose memory an output takes."""
    return len(re.findall(r"\{[\d, ]*\}: \(\d+, \{[\d, ]*\}, (?:may|must)-alias\)", text.partition("\n")[0]))


def lowered_counts(text: str) -> tuple[int, int]:
    """The numbers of operations and of products in the text of a lowered program, `lowered.as_text()`.

    A function counts at each of its calls: JAX lowers equal layers as one. The body of a loop counts once.
    """
    functions = {found[1]: found[2] for found in _FUNCTION.finditer(text)}

    @functools.cache
    def counts(name: str) -> tuple[int, int]:
        ops = _STABLEHLO.findall(functions[name])
        called = [counts(one) for one in _CALL.findall(functions[name])]
        products = sum(op in ("dot_general", "convolution") for op in ops)
        return len(ops) + sum(one[0] for one in called), products + sum(one[1] for one in called)

    return counts("main")


def arrays(text: str) -> list[tuple[str, tuple[int, ...]]]:
    """Element type and shape of each array in a type."""
    return [(dtype, tuple(int(n) for n in shape.split(",") if n)) for dtype, shape in _ARRAY.findall(text)]


def bytes_of(text: str) -> int:
    """The size of a type."""
    return sum(math.prod(shape) * _width(dtype) for dtype, shape in arrays(text))


def _devices_of(collective: Instruction) -> int:
    """The number of devices in each of its groups."""
    found = _GROUP.search(collective.line)
    if found is None:
        pairs = re.search(r"source_target_pairs=\{(.*?)\}\}", collective.line)
        if pairs is None:
            raise ValueError(f"a collective without groups of devices: {collective.line.strip()[:200]}")
        return len(set(re.findall(r"\d+", pairs[1])))
    if found["mesh"] is not None:
        sizes = dict(_AXIS.findall(found["mesh"]))
        return math.prod(int(sizes[name]) for name in re.findall(r"'(\w+)'", found["axes"]))
    return int(found["size"]) if found["size"] else len(found["listed"].split(","))


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
