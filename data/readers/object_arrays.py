"""Reads NumPy files, also object arrays, without running code from them.

An object array in a `.npy` file is a pickle, a program that NumPy runs (`allow_pickle=True`). This module accepts only
the description of plain arrays. The pickle cannot call NumPy's functions either, because NumPy would read the file's
bytes as addresses for a malicious dtype: stand-ins collect the arguments of calls, and arrays are built from them
afterwards.
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

from data import DataError, short_reason

MAX_BYTES = 2**30
"""Maximum number of uncompressed bytes in a file."""


def read_array(path: Path, *, max_bytes: int = MAX_BYTES) -> np.ndarray:
    """The plain array of a `.npy` or `.npy.gz` file, read-only.

    Raises: FileNotFoundError; DataError naming any other file, also an object array.
    """
    raw = _uncompressed(path, max_bytes)
    try:
        return _parse_plain(raw)
    except Exception as error:  # NumPy's parser raises several unrelated types
        raise DataError(f"{path} is not a plain NumPy array: {short_reason(error)}") from error


def read_arrays(path: Path, names: Sequence[str], *, max_bytes: int = MAX_BYTES) -> dict[str, np.ndarray]:
    """Plain arrays of a `.npz` file by name, read-only.

    Raises: FileNotFoundError; DataError naming the file when an array is missing or is not plain.
    """
    _require_file(path)
    try:
        with zipfile.ZipFile(path) as archive:
            held = [name.removesuffix(".npy") for name in archive.namelist()]
            missing = [name for name in names if name not in held]
            if missing:
                raise ValueError(f"the array {missing[0]!r} is missing; it has {', '.join(held) or 'none'}")
            arrays = {}
            for name in names:
                with archive.open(f"{name}.npy") as stream:
                    arrays[name] = _parse_plain(_limited(stream, max_bytes))
            return arrays
    except Exception as error:  # zipfile and NumPy's parser raise a dozen unrelated types
        raise DataError(f"{path}: {short_reason(error)}; expected the arrays {', '.join(names)}") from error


def read_object_array(path: Path, *, max_bytes: int = MAX_BYTES) -> list[np.ndarray]:
    """The plain arrays in the one-dimensional object array of a `.npy` or `.npy.gz` file.

    Args:
      path: a file of `np.save`, under Python 2 or 3.
      max_bytes: maximum number of bytes of the uncompressed file, and of all arrays.

    Returns:
      Arrays of numbers or booleans, read-only.

    Raises:
      FileNotFoundError: when the file does not exist.
      DataError: when it is anything else; names the file, and the function that a pickle calls.
    """
    raw = _uncompressed(path, max_bytes)
    try:
        shape, dtype, start = _header(raw)
        if dtype != np.dtype(object) or len(shape) != 1:
            raise ValueError(f"expected a one-dimensional array of objects, got shape {shape}, dtype {dtype}")
        arrays = [_as_array(element) for element in _unpickled_elements(raw[start:], shape)]
        if sum(array.nbytes for array in arrays) > max_bytes:  # one array may occur several times
            raise ValueError(f"more than {max_bytes} bytes of arrays")
    except Exception as error:  # a malicious pickle can raise any error
        raise DataError(f"{path} is not an array of plain arrays: {short_reason(error)}") from error
    return arrays


def _require_file(path: Path) -> None:
    if not path.is_file():
        raise FileNotFoundError(f"the NumPy file {path} does not exist")


def _uncompressed(path: Path, max_bytes: int) -> bytes:
    _require_file(path)
    opener: Any = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rb") as stream:
            return _limited(stream, max_bytes)
    except Exception as error:  # gzip raises OSError, EOFError or zlib.error for damaged bytes
        raise DataError(f"{path} cannot be read: {short_reason(error)}") from error


def _limited(stream: Any, max_bytes: int) -> bytes:
    raw = stream.read(max_bytes + 1)
    if len(raw) > max_bytes:
        raise ValueError(f"more than {max_bytes} bytes uncompressed")
    return raw


def _header(raw: bytes) -> tuple[tuple[int, ...], np.dtype, int]:
    """Shape, dtype, and the start of the content."""
    stream = io.BytesIO(raw)
    version = np.lib.format.read_magic(stream)
    readers: Any = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    if version not in readers:
        raise ValueError(f"expected version 1 or 2 of the format, got {version[0]}")
    shape, fortran_order, dtype = readers[version](stream)
    if fortran_order and len(shape) > 1:
        raise ValueError("the array is in Fortran order; save it with np.ascontiguousarray")
    return shape, dtype, stream.tell()


def _parse_plain(raw: bytes) -> np.ndarray:
    shape, dtype, start = _header(raw)
    if dtype.hasobject:
        raise ValueError("it contains Python objects")
    # The header is checked before memory is allocated for its shape.
    if math.prod(shape) * dtype.itemsize != len(raw) - start:
        raise ValueError(f"shape {shape} of {dtype} does not fit the {len(raw) - start} bytes in it")
    return np.frombuffer(raw, dtype, offset=start).reshape(shape)


class _StandIn:
    """The stand-in for a function that a pickle calls: it only stores its arguments."""

    said: tuple = ()
    state: tuple = ()

    def __init__(self, *said: Any):
        self.said = said

    # Every class has this method, so that a pickle that sets the attributes of a class itself fails.
    def __setstate__(self, state: tuple) -> None:
        self.state = state


class _Array(_StandIn):
    """`_reconstruct(ndarray, (0,), b"b")`, with the state (version, shape, dtype, Fortran order, content)."""


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
"""The opcodes of pickles of arrays, without dictionaries and sets, whose entries are hashed: the hash of a very deep
tuple overflows the interpreter's stack."""


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in ADMITTED:
            raise pickle.UnpicklingError(f"its pickle calls {module}.{name}: refused; no code was run")
        return ADMITTED[module, name]


def _unpickled_elements(raw: bytes, shape: tuple[int, ...]) -> list[Any]:
    for opcode, argument, _ in pickletools.genops(raw):
        if opcode.name not in OPCODES:
            raise ValueError(f"its pickle has the opcode {opcode.name}, which arrays do not need")
        # The unpickler allocates a table as large as the highest index, before it continues to read.
        if opcode.name in ("PUT", "LONG_BINPUT") and (argument or 0) > len(raw):
            raise ValueError("its pickle is damaged")
    outer = _Unpickler(io.BytesIO(raw), encoding="latin1").load()
    if not isinstance(outer, _Array) or len(outer.state) != 5 or not isinstance(outer.state[4], list):
        raise ValueError("its pickle is not an array of objects")
    if outer.state[1] != shape or len(outer.state[4]) != shape[0]:
        raise ValueError(f"its header says {shape[0]} elements, but its pickle has {len(outer.state[4])}")
    return outer.state[4]


def _as_array(element: Any) -> np.ndarray:
    if not isinstance(element, _Array) or len(element.state) != 5:
        raise ValueError(f"an element is {type(element).__name__.removeprefix('_')}, expected a plain array")
    _, shape, dtype, fortran_order, content = element.state
    # Only strings are joined or printed: the text of other small objects of a pickle may be endless.
    parts = [*dtype.state[1:2], *dtype.said[:1]] if isinstance(dtype, _DType) else [dtype]
    kind = "".join(part if type(part) is str else type(part).__name__ for part in parts)
    if not re.fullmatch("[<>=|](b1|[iuf][1248])", kind):
        raise ValueError(f"an element is an array of {kind}, expected numbers")
    if isinstance(content, _Encoded):
        content = content.said[0] if content.said else ""
    if isinstance(content, str):  # bytes, as Python 2 wrote them
        content = content.encode("latin1")
    return np.frombuffer(content, kind).reshape(shape, order="F" if fortran_order else "C")
