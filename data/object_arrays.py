"""NumPy files, object arrays among them, read without executing anything.

An object array in a `.npy` file is a pickle, and a pickle is a program, which NumPy runs (`allow_pickle=True`). Here it
may only say what plain arrays are made of. Not even NumPy's own functions are handed to it, since a made-up dtype would
have NumPy take the file's bytes for addresses: stand-ins collect what is said, and arrays are made of it afterwards.
"""

import gzip
import io
import math
import pickle
import pickletools
import re
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from data import DataError
from data.archives import short_reason

MAX_BYTES = 2**30
"""Most bytes that a file may hold, uncompressed."""


def read_array(path: Path, *, max_bytes: int = MAX_BYTES) -> np.ndarray:
    """The plain array of a `.npy` or `.npy.gz` file, not to be written to.

    Raises: FileNotFoundError; DataError naming the file when it holds something else, object arrays included.
    """
    raw = _uncompressed(path, max_bytes)
    try:
        return _parse_plain(raw)
    except Exception as error:  # NumPy's parser raises several unrelated types
        raise DataError(f"{path} is not a plain NumPy array: {short_reason(error)}") from error


def read_arrays(path: Path, names: Sequence[str], *, max_bytes: int = MAX_BYTES) -> dict[str, np.ndarray]:
    """Plain arrays of a `.npz` file by name, not to be written to.

    Raises: FileNotFoundError; DataError naming the file when an array is missing, or is none.
    """
    _require_file(path)
    try:
        with zipfile.ZipFile(path) as archive:
            held = [name.removesuffix(".npy") for name in archive.namelist()]
            missing = [name for name in names if name not in held]
            if missing:
                raise ValueError(f"no array {missing[0]!r} is in it; it has {', '.join(held) or 'none'}")
            arrays = {}
            for name in names:
                with archive.open(f"{name}.npy") as stream:
                    arrays[name] = _parse_plain(_limited(stream, max_bytes))
            return arrays
    except Exception as error:  # zipfile and NumPy's parser raise a dozen unrelated types
        raise DataError(f"{path}: {short_reason(error)}; expected the arrays {', '.join(names)}") from error


def read_object_array(path: Path, *, max_bytes: int = MAX_BYTES) -> list[np.ndarray]:
    """The plain arrays that the one-dimensional object array of a `.npy` or `.npy.gz` file holds.

    Args:
      path: what `np.save` wrote, under Python 2 or 3.
      max_bytes: most bytes of the file, uncompressed, and of the arrays together.

    Returns:
      Arrays of numbers or truth values, not to be written to.

    Raises:
      FileNotFoundError: when there is no such file.
      DataError: when it holds anything else; names the file, and what a pickle wanted to call.
    """
    raw = _uncompressed(path, max_bytes)
    try:
        shape, dtype, start = _header(raw)
        if dtype != np.dtype(object) or len(shape) != 1:
            raise ValueError(f"expected a one-dimensional array of objects, got shape {shape}, dtype {dtype}")
        arrays = [_as_array(element) for element in _unpickled_elements(raw[start:], shape)]
        if sum(array.nbytes for array in arrays) > max_bytes:  # one array may be an element many times
            raise ValueError(f"more than {max_bytes} bytes of arrays")
    except Exception as error:  # a pickle that was tampered with raises whatever it likes
        raise DataError(f"{path} is not an array of plain arrays: {short_reason(error)}") from error
    return arrays


def _require_file(path: Path) -> None:
    if not path.is_file():
        raise FileNotFoundError(f"no NumPy file at {path}")


def _uncompressed(path: Path, max_bytes: int) -> bytes:
    _require_file(path)
    opener: Any = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rb") as stream:
            return _limited(stream, max_bytes)
    except Exception as error:  # gzip raises OSError, EOFError or zlib.error on damaged bytes
        raise DataError(f"{path} cannot be read: {short_reason(error)}") from error


def _limited(stream: Any, max_bytes: int) -> bytes:
    raw = stream.read(max_bytes + 1)
    if len(raw) > max_bytes:
        raise ValueError(f"more than {max_bytes} bytes uncompressed")
    return raw


def _header(raw: bytes) -> tuple[tuple[int, ...], np.dtype, int]:
    """Shape, dtype, and where the content begins."""
    stream = io.BytesIO(raw)
    version = np.lib.format.read_magic(stream)
    readers: Any = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    if version not in readers:
        raise ValueError(f"expected version 1 or 2 of the format, got {version[0]}")
    shape, fortran_order, dtype = readers[version](stream)
    if fortran_order and len(shape) > 1:
        raise ValueError("the array is in Fortran's order; save it with np.ascontiguousarray")
    return shape, dtype, stream.tell()


def _parse_plain(raw: bytes) -> np.ndarray:
    shape, dtype, start = _header(raw)
    if dtype.hasobject:
        raise ValueError("it contains Python objects")
    # What the header claims is compared before memory is taken for it.
    if math.prod(shape) * dtype.itemsize != len(raw) - start:
        raise ValueError(f"shape {shape} of {dtype} does not fit the {len(raw) - start} bytes in it")
    return np.frombuffer(raw, dtype, offset=start).reshape(shape)


class _StandIn:
    """What a pickle may call: it stores its arguments and does nothing."""

    said: tuple = ()
    state: tuple = ()

    def __init__(self, *said: Any):
        self.said = said

    # Every class has this method, so that a pickle that sets the attributes of a class itself fails.
    def __setstate__(self, state: tuple) -> None:
        self.state = state


class _Array(_StandIn):
    """`_reconstruct(ndarray, (0,), b"b")`, with the state (version, shape, dtype, Fortran's order, content)."""


class _DType(_StandIn):
    """`dtype("i4", False, True)`, with the state (version, byte order, ...)."""


class _Encoded(_StandIn):
    """`encode(text, "latin1")`, or `bytes()`: bytes for Python 2 to read."""


ADMITTED: dict[tuple[str, str], type[_StandIn]] = {
    ("numpy.core.multiarray", "_reconstruct"): _Array,
    ("numpy._core.multiarray", "_reconstruct"): _Array,
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _DType,
    ("_codecs", "encode"): _Encoded,
    ("__builtin__", "bytes"): _Encoded,
}


OPCODES = {
    *("PROTO", "FRAME", "STOP", "MARK", "GLOBAL", "STACK_GLOBAL", "REDUCE", "BUILD"),
    *("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE", "GET", "BINGET", "LONG_BINGET"),
    *("NONE", "NEWTRUE", "NEWFALSE", "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1"),
    *("STRING", "BINSTRING", "SHORT_BINSTRING", "UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
    *("BINBYTES", "SHORT_BINBYTES", "BINBYTES8"),
    *("TUPLE", "EMPTY_TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "LIST", "EMPTY_LIST", "APPEND", "APPENDS"),
}
"""What pickles of arrays are written with. Among what they are not: dictionaries and sets, which hash what is put in
them, and the hash of a tuple that is deep enough overflows the interpreter's stack."""


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in ADMITTED:
            raise pickle.UnpicklingError(f"its pickle calls {module}.{name}: refused; no code was run")
        return ADMITTED[module, name]


def _unpickled_elements(raw: bytes, shape: tuple[int, ...]) -> list[Any]:
    for opcode, argument, _ in pickletools.genops(raw):
        if opcode.name not in OPCODES:
            raise ValueError(f"its pickle has the opcode {opcode.name}, which arrays do not need")
        # The unpickler makes a table as large as the greatest index that it is told, before it reads on.
        if opcode.name in ("PUT", "LONG_BINPUT") and (argument or 0) > len(raw):
            raise ValueError("its pickle is damaged")
    outer = _Unpickler(io.BytesIO(raw), encoding="latin1").load()
    if not isinstance(outer, _Array) or len(outer.state) != 5 or not isinstance(outer.state[4], list):
        raise ValueError("its pickle is not an array of objects")
    if outer.state[1] != shape or len(outer.state[4]) != shape[0]:
        raise ValueError(f"its header says {shape[0]} elements, its pickle holds {len(outer.state[4])}")
    return outer.state[4]


def _as_array(found: Any) -> np.ndarray:
    if not isinstance(found, _Array) or len(found.state) != 5:
        raise ValueError(f"an element is {type(found).__name__.removeprefix('_')}, expected a plain array")
    _, shape, dtype, fortran_order, content = found.state
    # Only strings are put together or printed: what else a pickle makes may be small and its text endless.
    parts = [*dtype.state[1:2], *dtype.said[:1]] if isinstance(dtype, _DType) else [dtype]
    kind = "".join(part if type(part) is str else type(part).__name__ for part in parts)
    if not re.fullmatch("[<>=|](b1|[iuf][1248])", kind):
        raise ValueError(f"an element is an array of {kind}, expected numbers")
    if isinstance(content, _Encoded):
        content = content.said[0] if content.said else ""
    if isinstance(content, str):  # bytes, as Python 2 wrote them
        content = content.encode("latin1")
    return np.frombuffer(content, kind).reshape(shape, order="F" if fortran_order else "C")
