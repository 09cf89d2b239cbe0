"""TensorBoard's event files, with scalars and texts.

A file is a sequence of records, each a message of TensorFlow's `event.proto`. TensorBoard's own writers import
TensorFlow or PyTorch, and write in a thread, whose errors do not reach the run.

Source: https://www.tensorflow.org/tutorials/load_data/tfrecord#tfrecords_format_details and
https://protobuf.dev/programming-guides/encoding.
"""

import os
import socket
import struct
import time
from pathlib import Path

import numpy as np

from jaxnlp.saving.atomic_files import AppendedFile

_CASTAGNOLI = 0x82F63B78
VARINT, DOUBLE, BYTES, FLOAT = 0, 1, 2, 5
"""Wire types of protocol buffers."""


class EventFile:
    """The event file of one start. Every event is on disk as soon as it is added; see `close`.

    Args:
      folder: for TensorBoard; created with its parents.
      first_step: TensorBoard hides earlier files' events from this step on.

    Raises: OSError, as all methods.
    """

    def __init__(self, folder: Path, *, first_step: int):
        folder.mkdir(parents=True, exist_ok=True)
        now = time.time()
        # TensorBoard sorts a folder's files by name.
        path = folder / f"events.out.tfevents.{int(now):010}.{socket.gethostname()}.{os.getpid()}"
        self._file = AppendedFile(path)
        self._write(0, _field(3, BYTES, b"brain.Event:2"))
        self._write(first_step, _field(7, BYTES, _field(1, VARINT, _varint(1))))  # session_log: START

    def add_scalar(self, name: str, value: float, step: int) -> None:
        """Adds a metric's value; a value outside float32's range becomes infinite."""
        with np.errstate(over="ignore"):
            self._add(name, _field(2, FLOAT, np.asarray(value, "<f4").tobytes()), step)

    def add_text(self, name: str, text: str, step: int) -> None:
        """Adds a text, in Markdown. Surrogates become question marks."""
        plugin = _field(9, BYTES, _field(1, BYTES, _field(1, BYTES, b"text")))
        shape = _field(2, BYTES, _field(2, BYTES, _field(1, VARINT, _varint(1))))
        strings = _field(8, BYTES, text.encode("utf-8", "replace"))
        tensor = _field(1, VARINT, _varint(7)) + shape + strings  # type 7 = strings
        self._add(f"{name}/text_summary", plugin + _field(8, BYTES, tensor), step)

    def _add(self, name: str, value: bytes, step: int) -> None:
        summary = _field(1, BYTES, _field(1, BYTES, name.encode("utf-8", "replace")) + value)
        self._write(step, _field(5, BYTES, summary))

    def _write(self, step: int, what: bytes) -> None:
        event = _field(1, DOUBLE, struct.pack("<d", time.time())) + _field(2, VARINT, _varint(step)) + what
        length = struct.pack("<Q", len(event))
        self._file.append(length + _checksum(length) + event + _checksum(event))

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


def _field(number: int, wire_type: int, content: bytes) -> bytes:
    """A field with a number below 16: its key, the length of variable content, its content."""
    length = _varint(len(content)) if wire_type == BYTES else b""
    return bytes([number << 3 | wire_type]) + length + content


def _varint(value: int) -> bytes:
    """A number >= 0 in groups of 7 bits, the lowest first; the highest bit of a byte means that another one follows."""
    groups = bytearray()
    while value > 0x7F:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*groups, value])


def _checksum(content: bytes) -> bytes:
    """The masked CRC-32C of a record."""
    crc = 0xFFFFFFFF
    for byte in content:
        crc = crc >> 8 ^ _TABLE[(crc ^ byte) & 0xFF]
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def _remainder(byte: int) -> int:
    for _ in range(8):
        byte = byte >> 1 ^ (_CASTAGNOLI if byte & 1 else 0)
    return byte


_TABLE = tuple(_remainder(byte) for byte in range(256))
